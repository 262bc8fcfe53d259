"""The 25 features of an event: 10 measured ones, then 15 that physicists derive from them.

Which of them the physics paper names, and which are ours, stands in docs/htautau.md with their
formulas; momenta and masses in GeV, angles in radians.
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
from torchapl.paper.data.simulate.missing_mass import missing_mass

LOW_LEVEL = (
    "lepton1_pt",
    "lepton1_eta",
    "lepton1_phi",
    "lepton2_pt",
    "lepton2_eta",
    "lepton2_phi",
    "missing_pt",
    "missing_phi",
    "jet_count",
    "jet1_pt",
)
HIGH_LEVEL = (
    "axial_missing_pt",
    "sum_pt",
    "relative_missing_pt",
    "lepton_delta_phi",
    "lepton_delta_eta",
    "lepton_delta_r",
    "lepton_mass",
    "missing_mass",
    "sphericity",
    "transverse_sphericity",
    "visible_mass",
    "lepton_pt_ratio",
    "collinear_mass",
    "total_transverse_mass",
    "pair_pt",
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
    columns = {
        "lepton1_pt": pt1,
        "lepton1_eta": eta(first),
        "lepton1_phi": phi(first),
        "lepton2_pt": pt2,
        "lepton2_eta": eta(second),
        "lepton2_phi": phi(second),
        "missing_pt": missing_pt,
        "missing_phi": phi(missing),
        "jet_count": (jet_pt > 0).sum(1).astype(np.float64),
        "jet1_pt": jet_pt[:, 0],
        "axial_missing_pt": (missing * pair[:, :2]).sum(1) / np.maximum(pt(pair), 1e-6),
        "sum_pt": pt1 + pt2 + missing_pt + jet_pt.sum(1),
        "relative_missing_pt": _relative_missing(events),
        "lepton_delta_phi": delta_phi(first, second),
        "lepton_delta_eta": np.abs(eta(first) - eta(second)),
        "lepton_delta_r": delta_r(first, second),
        "lepton_mass": mass(pair),
        "missing_mass": missing_mass(first, second, missing),
        "sphericity": _sphericity(events),
        "transverse_sphericity": _transverse_sphericity(events),
        "visible_mass": mass(pair + events.jets.sum(1)),
        "lepton_pt_ratio": pt2 / pt1,
        "collinear_mass": _collinear_mass(first, second, missing),
        "total_transverse_mass": _total_transverse_mass(first, second, missing),
        "pair_pt": pt(pair[:, :2] + missing),
    }
    return np.stack([columns[name] for name in FEATURES], axis=1)


def _total_transverse_mass(first: Array, second: Array, missing: Array) -> Array:
    """Transverse mass of three momenta: the squares of those of their pairs add up."""
    pairs = ((first, missing), (second, missing), (first, second))
    squares = [2 * pt(a) * pt(b) * (1 - np.cos(delta_phi(a, b))) for a, b in pairs]
    return np.asarray(np.sqrt(sum(squares)))


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


def _relative_missing(events: Measured) -> Array:
    """Missing momentum across the nearest lepton or jet, whose mismeasurement may have made it."""
    objects = np.concatenate([events.leptons, events.jets], axis=1)
    angles = delta_phi(objects, events.missing[:, None, :])
    nearest = np.where(pt(objects) > 0, angles, np.pi).min(1)
    return np.asarray(pt(events.missing) * np.sin(np.minimum(nearest, np.pi / 2)))


def _eigenvalues(events: Measured, axes: int) -> Array:
    """Eigenvalues, rising and of sum 1, of the momentum tensor of leptons and jets."""
    momenta = np.concatenate([events.leptons, events.jets], axis=1)[..., :axes]
    tensor = np.einsum("nki,nkj->nij", momenta, momenta)
    tensor /= np.trace(tensor, axis1=1, axis2=2)[:, None, None]
    return np.asarray(np.linalg.eigvalsh(tensor))


def _sphericity(events: Measured) -> Array:
    """3/2 times the sum of the two smaller eigenvalues, from 0 to 1."""
    return np.asarray(np.clip(1.5 * _eigenvalues(events, 3)[:, :2].sum(1), 0.0, 1.0))


def _transverse_sphericity(events: Measured) -> Array:
    """Twice the smaller eigenvalue in the transverse plane, from 0 to 1."""
    return np.asarray(np.clip(2 * _eigenvalues(events, 2)[:, 0], 0.0, 1.0))
