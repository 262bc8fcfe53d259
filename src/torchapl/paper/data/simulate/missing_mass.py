r"""The most likely mass of a tau pair, from its leptons and the missing momentum.

The missing mass calculator (Elagin, Murat, Pranko and Safonov, arXiv:1012.4686) looks through the
momenta that the neutrinos may have, weighs each by how likely tau decays and the measurement of the
missing momentum make it, and takes the mass where most of the weight lies. Here the neutrinos fly
along their leptons, which leaves two unknowns: the shares :math:`x_1, x_2` that the leptons have of
their taus. A mass M fixes their product, :math:`x_1 x_2 = (m_{\ell\ell} / M)^2`, and its weight is
the sum over all ways to divide it.
"""

from __future__ import annotations

import numpy as np

from torchapl.paper.data.simulate.kinematics import Array, mass

# Resolution of the missing momentum along an axis, GeV: the soft term's in events of middling size.
RESOLUTION = 8.0
# Logarithms of M / m_ll, and ways to divide the logarithm of the product between the two leptons.
_RATIOS = np.linspace(0.02, 3.0, 75)
_DIVISIONS = (np.arange(24) + 0.5) / 24


def missing_mass(first: Array, second: Array, missing: Array) -> Array:
    """Return the most likely mass of each pair.

    Args:
        first: Momenta ``(px, py, pz, E)`` of the leptons of one tau, ``(n, 4)``.
        second: Those of the other.
        missing: Missing transverse momenta ``(px, py)``, ``(n, 2)``.

    Example:
        >>> first, second = np.array([[30.0, 0, 0, 30]]), np.array([[-15.0, 5, 0, 15.8114]])
        >>> missing_mass(first, second, np.array([[20.0, 10.0]])).round()
        array([79.])
    """
    one, other = (np.exp(-2 * np.outer(_RATIOS, shares)) for shares in (_DIVISIONS, 1 - _DIVISIONS))
    # The neutrinos' momenta in units of those of their leptons.
    along, across = 1 / one - 1, 1 / other - 1
    residual = [
        missing[:, axis, None, None]
        - along * first[:, axis, None, None]
        - across * second[:, axis, None, None]
        for axis in (0, 1)
    ]
    square = (residual[0] ** 2 + residual[1] ** 2) / RESOLUTION**2
    best = square.min(axis=(1, 2), keepdims=True)
    weight = (np.exp((best - square) / 2) * (_share_density(one) * _share_density(other))).sum(2)
    # The density in M: dx1 dx2 = 4 q u du dt with q = x1 x2 = exp(-2 u), and dM = M du.
    weight *= _RATIOS * np.exp(-3 * _RATIOS)
    return np.asarray(mass(first + second) * np.exp(_peak(weight)))


def _share_density(share: Array) -> Array:
    """Density of the share that a lepton has of an unpolarised, fast tau."""
    return np.asarray((5 - 9 * share**2 + 4 * share**3) / 3)


def _peak(weight: Array) -> Array:
    """Return where the weight is greatest: the top of a parabola through the three best points."""
    top = np.clip(weight.argmax(1), 1, len(_RATIOS) - 2)
    rows = np.arange(len(weight))
    left, middle, right = (
        np.log(np.maximum(weight[rows, top + step], 1e-300)) for step in (-1, 0, 1)
    )
    bend = left - 2 * middle + right
    shift = np.where(bend < 0, (left - right) / (2 * np.where(bend < 0, bend, -1.0)), 0.0)
    return np.asarray(_RATIOS[top] + np.clip(shift, -1, 1) * (_RATIOS[1] - _RATIOS[0]))
