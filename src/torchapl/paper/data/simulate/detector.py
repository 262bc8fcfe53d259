"""A simple detector: acceptance and Gaussian resolutions of the size reached at the LHC.

=====================  ================================================================
electron               sigma(pT)/pT = 10 % / sqrt(pT) (+) 1 %
muon                   sigma(pT)/pT = 1.5 % (+) 0.02 % * pT
jet                    sigma(pT)/pT = 3 / pT (+) 80 % / sqrt(pT) (+) 5 %
soft term, per axis    sigma = 6 GeV (+) 0.5 * sqrt(activity outside jets)
=====================  ================================================================

pT in GeV, (+) a sum in quadrature; directions are exact. Accepted are two leptons with |eta| < 2.5,
one above 20 and one above 10 GeV and more than 0.4 apart. Jets count above 30 GeV within
|eta| < 4.5 and at least 0.4 from both leptons. The missing momentum is minus the sum of what was
measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from torchapl.paper.data.simulate.generator import Surroundings
from torchapl.paper.data.simulate.kinematics import Array, delta_r, eta, pt

LEPTON_MIN_PT = (20.0, 10.0)
LEPTON_MAX_ETA = 2.5
JET_MIN_PT = 30.0
JET_MAX_ETA = 4.5
SEPARATION = 0.4
# How far a lepton may be from the thresholds, early in a collision, and still come to be accepted.
_MARGIN_PT, _MARGIN_ETA = 3.0, 0.3
# Br(tau -> e) = 17.82 %, Br(tau -> mu) = 17.39 %.
ELECTRON_SHARE = 17.82 / (17.82 + 17.39)
_MAX_SLOPE = math.sinh(LEPTON_MAX_ETA + _MARGIN_ETA)


@dataclass(frozen=True)
class Measured:
    """Accepted events as a detector sees them; momenta ``(px, py, pz, E)`` in GeV.

    Attributes:
        leptons: The two leptons by falling pT, ``(n, 2, 4)``.
        jets: Jets by falling pT, zero-padded, ``(n, J, 4)``.
        missing: Missing transverse momentum ``(px, py)``, ``(n, 2)``.
    """

    leptons: Array
    jets: Array
    missing: Array


def measure_leptons(leptons: Array, rng: np.random.Generator) -> Array:
    """Measure leptons of true momenta ``(n, 2, 4)``; sorted by falling pT."""
    electron = rng.random(leptons.shape[:2]) < ELECTRON_SHARE
    size = pt(leptons)
    return _by_pt(_scale(leptons, np.where(electron, _electron(size), _muon(size)), rng))


def accepted(leptons: Array) -> NDArray[np.bool_]:
    """Say which events have their two measured leptons inside the acceptance."""
    return np.asarray(
        (pt(leptons) > LEPTON_MIN_PT).all(1)
        & (np.abs(eta(leptons)) < LEPTON_MAX_ETA).all(1)
        & (delta_r(leptons[:, 0], leptons[:, 1]) > SEPARATION)
    )


def hopeless(pt1: float, pz1: float, pt2: float, pz2: float) -> bool:
    """Say whether two leptons are so far outside the acceptance that nothing brings them in.

    Nothing: what a shower below ``LOOK_PT`` and the measurement may still change.
    """
    high, low = (pt1, pt2) if pt1 > pt2 else (pt2, pt1)
    return (
        high < LEPTON_MIN_PT[0] - _MARGIN_PT
        or low < LEPTON_MIN_PT[1] - _MARGIN_PT
        or abs(pz1) > _MAX_SLOPE * pt1
        or abs(pz2) > _MAX_SLOPE * pt2
    )


def measure(leptons: Array, around: Surroundings, rng: np.random.Generator) -> Measured:
    """Complete events by measured jets and missing momentum.

    Args:
        leptons: Measured leptons, ``(n, 2, 4)``.
        around: True jets, recoil and activity of the same events.
        rng: Source of randomness.
    """
    true_pt = pt(around.jets)
    jets = _scale(around.jets, _jet(true_pt), rng)
    outside = np.maximum(around.activity - true_pt.sum(1), 0.0)
    soft = around.recoil - around.jets[:, :, :2].sum(1)
    soft = soft + _soft(outside)[:, None] * rng.standard_normal(soft.shape)
    missing = -(soft + leptons[:, :, :2].sum(1) + jets[:, :, :2].sum(1))
    return Measured(leptons, _by_pt(_select_jets(jets, leptons)), missing)


def _select_jets(jets: Array, leptons: Array) -> Array:
    """Zero the jets that do not count."""
    apart = delta_r(jets[:, :, None], leptons[:, None, :]).min(2) >= SEPARATION
    counted = (pt(jets) > JET_MIN_PT) & (np.abs(eta(jets)) < JET_MAX_ETA) & apart
    return np.asarray(jets * counted[..., None])


def _by_pt(momenta: Array) -> Array:
    order = np.argsort(-pt(momenta), axis=1, kind="stable")
    return np.take_along_axis(momenta, order[..., None], axis=1)


def _scale(momenta: Array, resolution: Array, rng: np.random.Generator) -> Array:
    factor = 1 + resolution * rng.standard_normal(resolution.shape)
    return momenta * np.maximum(factor, 0.0)[..., None]


def _electron(size: Array) -> Array:
    return np.asarray(np.hypot(0.10 / np.sqrt(np.maximum(size, 1e-3)), 0.01))


def _muon(size: Array) -> Array:
    return np.asarray(np.hypot(0.015, 0.0002 * size))


def _jet(size: Array) -> Array:
    safe = np.where(size > 0, size, 1.0)
    return np.asarray(np.sqrt((3 / safe) ** 2 + 0.8**2 / safe + 0.05**2))


def _soft(activity: Array) -> Array:
    return np.asarray(np.hypot(6.0, 0.5 * np.sqrt(activity)))
