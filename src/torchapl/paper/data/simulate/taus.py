"""Leptonic decays of tau pairs with full spin correlations.

Pythia's own correlated decays sum helicity amplitudes of the whole 2 -> 2 process: 12 ms per Z,
which held the background to 75 events/s. In leptonic decays only the charged lepton and the sum of
the neutrinos can be observed, and the amplitudes reduce to the closed form below.

In the rest frame of a tau of spin s, a lepton of energy ``x * m_tau / 2`` in direction n follows

    x^2 * (3 - 2x) * (1 + s . h),    h = +-n * (1 - 2x) / (3 - 2x)    (+ for tau-, - for tau+),

so a pair with polarisation P along z and spin correlation R has weight 1 + P (h1z + h2z) + h1.R.h2.
The z axis of both rest frames is the direction of the tau- in the frame of the pair.

Decays are drawn one pair after the other, while Pythia is at its collision: whether the leptons can
be accepted decides whether the collision is worth finishing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchapl.paper.data.simulate.kinematics import Array, boost

TAU_MASS = 1.77686
_Z_MASS = 91.1876
_Z_WIDTH = 2.4952
_SIN2 = 0.2312
# Decays that are proposed at a time. Another number gives other events: it orders random numbers.
_PROPOSALS = 4096


@dataclass(frozen=True)
class Spin:
    """Spin state of a pair: polarisation along z and the diagonal of the correlation matrix."""

    polarisation: float
    correlation: tuple[float, float, float]


# Of a pair from a CP-even scalar: the triplet with no spin along z.
HIGGS_SPIN = Spin(0.0, (1.0, 1.0, -1.0))


def z_spin(mass: float, cosine: float, up_type: bool) -> Spin:
    """Spin state of a pair from q qbar -> Z/gamma*, at lowest order with massless fermions.

    Args:
        mass: Mass of the pair in GeV.
        cosine: Cosine of the angle between the quark and the tau- in the frame of the pair.
        up_type: Whether the quark is of up type.

    Example:
        >>> round(z_spin(91.19, 0.0, up_type=True).polarisation, 2)
        -0.15
    """
    s = mass * mass
    propagator = s / complex(s - _Z_MASS**2, _Z_MASS * _Z_WIDTH) / (_SIN2 * (1 - _SIN2))
    charge, isospin = (2 / 3, 0.5) if up_type else (-1 / 3, -0.5)

    def amplitude(quark_isospin: float, tau_isospin: float) -> complex:
        return -charge + propagator * (quark_isospin - charge * _SIN2) * (tau_isospin + _SIN2)

    left_left, left_right = amplitude(isospin, -0.5), amplitude(isospin, 0.0)
    right_left, right_right = amplitude(0.0, -0.5), amplitude(0.0, 0.0)
    same, opposite = (1 + cosine) ** 2, (1 - cosine) ** 2
    left = same * abs(left_left) ** 2 + opposite * abs(right_left) ** 2
    right = same * abs(right_right) ** 2 + opposite * abs(left_right) ** 2
    overlap = (left_left * left_right.conjugate() + right_left * right_right.conjugate()).real
    transverse = 2 * (1 - cosine**2) * overlap / (left + right)
    return Spin((right - left) / (left + right), (transverse, -transverse, 1.0))


@dataclass(frozen=True)
class Decay:
    """One decay of a pair.

    Attributes:
        rest: Momenta ``(px, py, pz, E)`` of the leptons from tau- and tau+ in the rest frames of
            the taus, along the axes of the pair; ``(2, 4)``.
        shares: Share of the energy of its tau that each lepton has, if the taus are fast.
    """

    rest: Array
    shares: tuple[float, float]


class Decays:
    """Draws decays of pairs one after the other.

    Example:
        >>> decays = Decays(np.random.default_rng(0))
        >>> decays.draw(HIGGS_SPIN).rest.shape
        (2, 4)
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._propose()

    def _propose(self) -> None:
        """Draw decays without regard to spins, for whole arrays at once."""
        rng, shape = self._rng, (_PROPOSALS, 2)
        # 2 x^2 (3 - 2x) is the even mixture of Beta(3, 2) and Beta(4, 1).
        x = np.where(rng.random(shape) < 0.5, rng.beta(3, 2, shape), rng.beta(4, 1, shape))
        z = rng.uniform(-1, 1, shape)
        angle = rng.uniform(0, 2 * np.pi, shape)
        radius = np.sqrt(1 - z**2)
        n = np.stack([radius * np.cos(angle), radius * np.sin(angle), z], axis=2)
        sign = np.array([1.0, -1.0])
        h = n * ((1 - 2 * x) / (3 - 2 * x) * sign)[..., None]
        energy = x[..., None] * (TAU_MASS / 2)
        self._rest = np.concatenate([n * energy, energy], axis=2)
        # The tau+ flies against the z axis.
        self._shares = (x / 2 * (1 + sign * z)).tolist()
        products, sums = (h[:, 0] * h[:, 1]).tolist(), h[..., 2].sum(1).tolist()
        # A product of two projections: no pair of directions weighs more than 4.
        lots = (4 * rng.random(_PROPOSALS)).tolist()
        self._proposals = enumerate(zip(products, sums, lots, strict=True))

    def draw(self, spin: Spin) -> Decay:
        """Return the next decay of a pair in this state."""
        polarisation, (xx, yy, zz) = spin.polarisation, spin.correlation
        while True:
            for number, ((x, y, z), along, lot) in self._proposals:
                if lot < 1 + polarisation * along + xx * x + yy * y + zz * z:
                    first, second = self._shares[number]
                    return Decay(self._rest[number], (first, second))
            self._propose()


def leptons(rest: Array, minus: Array, plus: Array) -> Array:
    """Carry leptons from the rest frames of their taus to the laboratory.

    Args:
        rest: Momenta in the rest frames, of shape ``(n, 2, 4)``.
        minus: Momenta ``(px, py, pz, E)`` of the tau-, of shape ``(n, 4)``.
        plus: Momenta of the tau+.

    Returns:
        Momenta of the leptons from tau- and tau+, of shape ``(n, 2, 4)``.
    """
    pair = minus + plus
    axes = _axes(minus, pair)
    carried = np.empty((len(minus), 2, 4))
    for i, tau in enumerate((minus, plus)):
        inside = boost(tau, pair, inverse=True)
        direction = np.einsum("nk,nkj->nj", rest[:, i, :3], axes)
        vector = np.concatenate([direction, rest[:, i, 3:]], axis=1)
        carried[:, i] = boost(boost(vector, inside), pair)
    return carried


def _axes(minus: Array, pair: Array) -> Array:
    """Right-handed axes of each pair: z along the tau-, x in the plane with the beam."""
    z = boost(minus, pair, inverse=True)[:, :3]
    z = z / np.linalg.norm(z, axis=1, keepdims=True)
    beam = np.zeros((len(minus), 4))
    beam[:, 2:] = 1.0
    y = np.cross(z, boost(beam, pair, inverse=True)[:, :3])
    y = y / np.linalg.norm(y, axis=1, keepdims=True)
    return np.stack([np.cross(y, z), y, z], axis=1)
