"""The 25 features of an event: 10 measured ones, then 15 that physicists derive from them.

Formulas stand in docs/htautau.md, in this order; momenta and masses in GeV, angles in radians.
"""

from __future__ import annotations

import numpy as np

from torchapl.paper.data.simulate.detector import Measured
from torchapl.paper.data.simulate.kinematics import (
    Array,
    cross,
    delta_phi,
    delta_r,
    eta,
    mass,
    phi,
    pt,
)

LOW_LEVEL = (
    "lepton1_pt",
    "lepton1_eta",
    "lepton1_phi",
    "lepton2_pt",
    "lepton2_eta",
    "lepton2_phi",
    "missing_pt",
    "missing_phi",
    "jet1_pt",
    "jet2_pt",
)
HIGH_LEVEL = (
    "visible_mass",
    "collinear_mass",
    "transverse_mass1",
    "transverse_mass2",
    "total_transverse_mass",
    "lepton_delta_r",
    "lepton_delta_phi",
    "missing_centrality",
    "axial_missing_pt",
    "relative_missing_pt",
    "sum_pt",
    "pair_pt",
    "sphericity",
    "jet_count",
    "dijet_mass",
)
FEATURES = LOW_LEVEL + HIGH_LEVEL

# Outside this range of momentum fractions the collinear approximation has broken down.
_FRACTIONS = (0.1, 1.0)


def features(events: Measured) -> Array:
    """Compute the features of events, ``(n, 25)`` in the order of ``FEATURES``."""
    first, second = events.leptons[:, 0], events.leptons[:, 1]
    missing = events.missing
    pt1, pt2, missing_pt = pt(first), pt(second), pt(missing)
    jet_pt = pt(events.jets)
    pair = first + second
    mt1, mt2, mt12 = (
        _transverse_mass(first, missing),
        _transverse_mass(second, missing),
        _transverse_mass(first, second),
    )
    columns = {
        "lepton1_pt": pt1,
        "lepton1_eta": eta(first),
        "lepton1_phi": phi(first),
        "lepton2_pt": pt2,
        "lepton2_eta": eta(second),
        "lepton2_phi": phi(second),
        "missing_pt": missing_pt,
        "missing_phi": phi(missing),
        "jet1_pt": jet_pt[:, 0],
        "jet2_pt": jet_pt[:, 1],
        "visible_mass": mass(pair),
        "collinear_mass": _collinear_mass(first, second, missing),
        "transverse_mass1": mt1,
        "transverse_mass2": mt2,
        "total_transverse_mass": np.sqrt(mt1**2 + mt2**2 + mt12**2),
        "lepton_delta_r": delta_r(first, second),
        "lepton_delta_phi": delta_phi(first, second),
        "missing_centrality": _centrality(first, second, missing),
        "axial_missing_pt": (missing * pair[:, :2]).sum(1) / np.maximum(pt(pair), 1e-6),
        "relative_missing_pt": _relative_missing(events),
        "sum_pt": pt1 + pt2 + missing_pt + jet_pt.sum(1),
        "pair_pt": pt(pair[:, :2] + missing),
        "sphericity": _sphericity(events),
        "jet_count": (jet_pt > 0).sum(1).astype(np.float64),
        "dijet_mass": np.where(jet_pt[:, 1] > 0, mass(events.jets[:, :2].sum(1)), 0.0),
    }
    return np.stack([columns[name] for name in FEATURES], axis=1)


def _transverse_mass(one: Array, other: Array) -> Array:
    return np.asarray(np.sqrt(2 * pt(one) * pt(other) * (1 - np.cos(delta_phi(one, other)))))


def _collinear_mass(first: Array, second: Array, missing: Array) -> Array:
    """Mass of the pair if all neutrinos fly along their lepton; 0 where that is impossible."""
    # The missing momentum is a * first + b * second; the fractions are 1 / (1 + a), 1 / (1 + b).
    area = cross(first, second)
    with np.errstate(divide="ignore", invalid="ignore"):
        fraction1 = area / (area + cross(missing, second))
        fraction2 = area / (area + cross(first, missing))
        full_mass = mass(first + second) / np.sqrt(fraction1 * fraction2)
    low, high = _FRACTIONS
    valid = (fraction1 > low) & (fraction1 <= high) & (fraction2 > low) & (fraction2 <= high)
    return np.where(valid, full_mass, 0.0)


def _centrality(first: Array, second: Array, missing: Array) -> Array:
    """Where the missing momentum points: sqrt 2 midway between the leptons, 1 along one of them."""
    angle = phi(missing)
    area = np.sin(phi(second) - phi(first))
    sign = np.where(area < 0, -1.0, 1.0)
    a = np.sin(angle - phi(first)) * sign
    b = np.sin(phi(second) - angle) * sign
    return np.asarray((a + b) / np.maximum(np.hypot(a, b), 1e-12))


def _relative_missing(events: Measured) -> Array:
    """Missing momentum across the nearest lepton or jet, whose mismeasurement may have made it."""
    objects = np.concatenate([events.leptons, events.jets], axis=1)
    angles = delta_phi(objects, events.missing[:, None, :])
    nearest = np.where(pt(objects) > 0, angles, np.pi).min(1)
    return np.asarray(pt(events.missing) * np.sin(np.minimum(nearest, np.pi / 2)))


def _sphericity(events: Measured) -> Array:
    """3/2 times the sum of the two smaller eigenvalues of the momentum tensor, from 0 to 1."""
    momenta = np.concatenate([events.leptons, events.jets], axis=1)[..., :3]
    tensor = np.einsum("nki,nkj->nij", momenta, momenta)
    tensor /= np.trace(tensor, axis1=1, axis2=2)[:, None, None]
    return np.asarray(np.clip(1.5 * np.linalg.eigvalsh(tensor)[:, :2].sum(1), 0.0, 1.0))
