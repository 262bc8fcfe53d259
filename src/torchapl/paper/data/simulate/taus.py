"""Leptonic decays of tau pairs with full spin correlations, for whole arrays of events.

Pythia's own correlated decays sum helicity amplitudes of the whole 2 -> 2 process: 12 ms per Z,
which held the background to 75 events/s. In leptonic decays only the charged lepton and the sum of
the neutrinos can be observed, and the amplitudes reduce to the closed form below.

In the rest frame of a tau of spin s, a lepton of energy ``x * m_tau / 2`` in direction n follows

    x^2 * (3 - 2x) * (1 + s . h),    h = +-n * (1 - 2x) / (3 - 2x)    (+ for tau-, - for tau+),

so a pair with polarisation P along z and spin correlation R has weight 1 + P (h1z + h2z) + h1.R.h2.
The z axis of both rest frames is the direction of the tau- in the frame of the pair.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from torchapl.paper.data.simulate.kinematics import Array, boost

TAU_MASS = 1.77686
_Z_MASS = 91.1876
_Z_WIDTH = 2.4952
_SIN2 = 0.2312


@dataclass(frozen=True)
class Spin:
    """Spin state of each pair: polarisation along z and the diagonal of the correlation matrix."""

    polarisation: Array  # (n,)
    correlation: Array  # (n, 3)


def higgs_spin(events: int) -> Spin:
    """Spin state of pairs from a CP-even scalar: the triplet with no spin along z.

    Example:
        >>> higgs_spin(1).correlation
        array([[ 1.,  1., -1.]])
    """
    return Spin(np.zeros(events), np.tile([1.0, 1.0, -1.0], (events, 1)))


def z_spin(mass: Array, cosine: Array, up_type: NDArray[np.bool_]) -> Spin:
    """Spin state of pairs from q qbar -> Z/gamma*, at lowest order with massless fermions.

    Args:
        mass: Mass of the pair in GeV.
        cosine: Cosine of the angle between the quark and the tau- in the frame of the pair.
        up_type: Whether the quark is of up type.
    """
    s = mass**2
    propagator = s / (s - _Z_MASS**2 + 1j * _Z_MASS * _Z_WIDTH) / (_SIN2 * (1 - _SIN2))
    charge = np.where(up_type, 2 / 3, -1 / 3)
    isospin = np.where(up_type, 0.5, -0.5)

    def amplitude(quark_isospin: Array, tau_isospin: float) -> NDArray[np.complex128]:
        coupling = (quark_isospin - charge * _SIN2) * (tau_isospin + _SIN2)
        return np.asarray(-charge + propagator * coupling, np.complex128)

    none = np.zeros_like(isospin)
    left_left, left_right = amplitude(isospin, -0.5), amplitude(isospin, 0.0)
    right_left, right_right = amplitude(none, -0.5), amplitude(none, 0.0)
    same, opposite = (1 + cosine) ** 2, (1 - cosine) ** 2
    left = same * np.abs(left_left) ** 2 + opposite * np.abs(right_left) ** 2
    right = same * np.abs(right_right) ** 2 + opposite * np.abs(left_right) ** 2
    total = left + right
    overlap = (left_left * left_right.conj() + right_left * right_right.conj()).real
    transverse = 2 * (1 - cosine**2) * overlap / total
    return Spin(
        (right - left) / total, np.stack([transverse, -transverse, np.ones_like(total)], axis=1)
    )


def decay(minus: Array, plus: Array, spin: Spin, rng: np.random.Generator) -> Array:
    """Draw the charged leptons of tau pairs.

    Args:
        minus: Momenta ``(px, py, pz, E)`` of the tau-, of shape ``(n, 4)``.
        plus: Momenta of the tau+.
        spin: Spin state of each pair.
        rng: Source of randomness.

    Returns:
        Momenta of the leptons from tau- and tau+, of shape ``(n, 2, 4)``.
    """
    rest = _draw_rest_frame(spin, rng)
    pair = minus + plus
    axes = _axes(minus, pair)
    leptons = np.empty((len(minus), 2, 4))
    for i, tau in enumerate((minus, plus)):
        inside = boost(tau, pair, inverse=True)
        direction = np.einsum("nk,nkj->nj", rest[:, i, :3], axes)
        vector = np.concatenate([direction, rest[:, i, 3:]], axis=1)
        leptons[:, i] = boost(boost(vector, inside), pair)
    return leptons


def _draw_rest_frame(spin: Spin, rng: np.random.Generator) -> Array:
    """Draw leptons in the tau rest frames, ``(n, 2, 4)`` along the axes of the pair."""
    drawn = np.empty((len(spin.polarisation), 2, 4))
    open_ = np.arange(len(drawn))
    while len(open_):
        shape = (len(open_), 2)
        # 2 x^2 (3 - 2x) is the even mixture of Beta(3, 2) and Beta(4, 1).
        x = np.where(rng.random(shape) < 0.5, rng.beta(3, 2, shape), rng.beta(4, 1, shape))
        z = rng.uniform(-1, 1, shape)
        angle = rng.uniform(0, 2 * np.pi, shape)
        radius = np.sqrt(1 - z**2)
        n = np.stack([radius * np.cos(angle), radius * np.sin(angle), z], axis=2)
        h = n * ((1 - 2 * x) / (3 - 2 * x))[..., None] * np.array([1.0, -1.0])[:, None]
        weight = (
            1
            + spin.polarisation[open_] * h[..., 2].sum(1)
            + (spin.correlation[open_] * h[:, 0] * h[:, 1]).sum(1)
        )
        # A product of two projections: no pair of directions weighs more than 4.
        accepted = 4 * rng.random(len(open_)) < weight
        energy = x[accepted, :, None] * (TAU_MASS / 2)
        drawn[open_[accepted]] = np.concatenate([n[accepted] * energy, energy], axis=2)
        open_ = open_[~accepted]
    return drawn


def _axes(minus: Array, pair: Array) -> Array:
    """Right-handed axes of each pair: z along the tau-, x in the plane with the beam."""
    z = boost(minus, pair, inverse=True)[:, :3]
    z = z / np.linalg.norm(z, axis=1, keepdims=True)
    beam = np.zeros((len(minus), 4))
    beam[:, 2:] = 1.0
    y = np.cross(z, boost(beam, pair, inverse=True)[:, :3])
    y = y / np.linalg.norm(y, axis=1, keepdims=True)
    return np.stack([np.cross(y, z), y, z], axis=1)
