from __future__ import annotations

import numpy as np
import pytest

from torchapl.paper.data.simulate import missing_mass as module
from torchapl.paper.data.simulate.kinematics import Array, mass, pt
from torchapl.paper.data.simulate.missing_mass import missing_mass


def decayed(boson_mass: float, boson_pt: float, events: int = 8000) -> tuple[Array, Array, Array]:
    """Bosons that decay to two taus, whose leptons fly along them; the neutrinos are measured."""
    rng = np.random.default_rng(0)
    direction = rng.normal(size=(events, 3))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    half = np.concatenate([direction, np.ones((events, 1))], axis=1) * boson_mass / 2
    energy = np.hypot(boson_mass, boson_pt)
    gamma, push = energy / boson_mass, boson_pt / boson_mass
    taus = []
    for sign in (1, -1):
        rest = half * np.array([sign, sign, sign, 1.0])
        moved = rest.copy()
        moved[:, 0] = gamma * rest[:, 0] + push * rest[:, 3]
        moved[:, 3] = gamma * rest[:, 3] + push * rest[:, 0]
        taus.append(moved)
    grid = np.linspace(0, 1, 10_001)
    shares = np.interp(rng.random((2, events)), (5 * grid - 3 * grid**3 + grid**4) / 3, grid)
    leptons = [share[:, None] * tau for share, tau in zip(shares, taus, strict=True)]
    missing = sum(tau - lepton for tau, lepton in zip(taus, leptons, strict=True))
    smeared = missing[:, :2] + rng.normal(0, module.RESOLUTION, (events, 2))
    high, low = np.sort([pt(lepton) for lepton in leptons], axis=0)[::-1]
    kept = (high > 20) & (low > 10)
    return leptons[0][kept], leptons[1][kept], smeared[kept]


# The faster the boson, the better the missing momentum says where the neutrinos went.
@pytest.mark.parametrize("boson_mass", [91.2, 125.0])
@pytest.mark.parametrize(("boson_pt", "bias", "width"), [(20.0, 0.15, 0.45), (150.0, 0.06, 0.25)])
def test_peaks_at_the_mass_of_the_boson(
    boson_mass: float, boson_pt: float, bias: float, width: float
) -> None:
    first, second, missing = decayed(boson_mass, boson_pt)
    found = missing_mass(first, second, missing) / boson_mass
    assert np.median(found) == pytest.approx(1, abs=bias)
    assert np.quantile(found, [0.16, 0.84]) == pytest.approx([1, 1], abs=width)


def test_is_the_maximum_of_a_sum_over_all_shares() -> None:
    """Brute force: a histogram of the masses of millions of shares, weighted."""
    first, second = np.array([[30.0, 5, 20, 36.4]]), np.array([[-20.0, 10, -5, 22.9]])
    missing = np.array([[15.0, 12.0]])
    rng = np.random.default_rng(0)
    one, other = rng.uniform(0.002, 1, (2, 4_000_000))
    weight = (5 - 9 * one**2 + 4 * one**3) * (5 - 9 * other**2 + 4 * other**3)
    for axis in (0, 1):
        flown = (1 / one - 1) * first[0, axis] + (1 / other - 1) * second[0, axis]
        weight = weight * np.exp(-(((missing[0, axis] - flown) / module.RESOLUTION) ** 2) / 2)
    masses = mass(first + second)[0] / np.sqrt(one * other)
    counts, edges = np.histogram(masses, np.arange(50, 400, 4.0), weights=weight)
    peak = edges[counts.argmax()] + 2
    assert missing_mass(first, second, missing)[0] == pytest.approx(peak, abs=6)


def test_finite_whatever_the_missing_momentum() -> None:
    first, second = np.array([[30.0, 0, 0, 30]]), np.array([[-15.0, 0, 0, 15]])
    for missing in ([0.0, 0.0], [1e4, -1e4], [-30.0, 0.0]):
        found = missing_mass(first, second, np.array([missing]))
        assert np.isfinite(found).all()
        assert found[0] > mass(first + second)[0]
