from __future__ import annotations

import numpy as np
import pytest

from torchapl.paper.data.simulate.kinematics import Array, mass
from torchapl.paper.data.simulate.taus import HIGGS_SPIN, TAU_MASS, Decays, Spin, leptons, z_spin

EVENTS = 100_000


def taus(momentum: Array) -> tuple[Array, Array]:
    """Back-to-back pairs."""
    energy = np.sqrt((momentum**2).sum(1, keepdims=True) + TAU_MASS**2)
    return tuple(np.concatenate([sign * momentum, energy], axis=1) for sign in (1, -1))


def fast(events: int = EVENTS) -> tuple[Array, Array]:
    return taus(np.tile([30.0, 40.0, 20.0], (events, 1)))


def decayed(minus: Array, plus: Array, spin: Spin, seed: int = 0) -> Array:
    decays = Decays(np.random.default_rng(seed))
    return leptons(np.array([decays.draw(spin).rest for _ in minus]), minus, plus)


def energy_shares(spin: Spin) -> Array:
    minus, plus = fast()
    return decayed(minus, plus, spin)[..., 3] / np.stack([minus[:, 3], plus[:, 3]], axis=1)


def test_what_is_left_for_the_neutrinos_is_possible() -> None:
    minus, plus = fast(10_000)
    found = decayed(minus, plus, HIGGS_SPIN)
    for tau, lepton in ((minus, found[:, 0]), (plus, found[:, 1])):
        neutrinos = tau - lepton
        square = neutrinos[:, 3] ** 2 - (neutrinos[:, :3] ** 2).sum(1)
        assert square.min() > -1e-6
        assert square.max() < TAU_MASS**2
        np.testing.assert_allclose(mass(lepton), 0, atol=1e-3)


# Exact moments of x^2 (3 - 2x) (1 + s.h): the lepton takes 7/20 - P/20 of a fast tau's energy, and
# the shares of the two have the covariance R_zz / 400. One standard error is 7.5e-4 and 1.8e-4.
@pytest.mark.parametrize("polarisation", [-1.0, 0.0, 1.0])
def test_share_of_the_energy_follows_the_polarisation(polarisation: float) -> None:
    spin = Spin(polarisation, (0.0, 0.0, 1.0))
    np.testing.assert_allclose(energy_shares(spin).mean(0), 0.35 - 0.05 * polarisation, atol=0.003)


@pytest.mark.parametrize("zz", [-1.0, 0.0, 1.0])
def test_shares_are_correlated_as_the_spins_are(zz: float) -> None:
    spin = Spin(0.0, (0.0, 0.0, zz))
    covariance = np.cov(energy_shares(spin).T)[0, 1]
    assert covariance == pytest.approx(zz / 400, abs=7e-4)


def test_transverse_correlations() -> None:
    # Slow taus along the lab's x: spin axes (x, y, z) are then the lab's (z, -y, x), and
    # E[p1 p2] = -R / 100 * (m_tau / 2)^2 along each. One standard error is 5.6e-4.
    minus, plus = taus(np.tile([1e-3, 0.0, 0.0], (EVENTS, 1)))
    correlation = (1.0, -0.5, 0.5)
    momenta = decayed(minus, plus, Spin(0.0, correlation), seed=1) / (TAU_MASS / 2)
    found = (momenta[:, 0, :3] * momenta[:, 1, :3]).mean(0)[[2, 1, 0]]
    np.testing.assert_allclose(found, -np.array(correlation) / 100, atol=0.0022)


def test_shares_are_those_of_fast_taus() -> None:
    minus, plus = fast(1000)
    decays = Decays(np.random.default_rng(0))
    drawn = [decays.draw(HIGGS_SPIN) for _ in minus]
    momenta = leptons(np.array([decay.rest for decay in drawn]), minus, plus)
    shares = momenta[..., 3] / np.stack([minus[:, 3], plus[:, 3]], axis=1)
    # Fast: 54 GeV, where (m / E)^2 / 4 is 3e-4.
    np.testing.assert_allclose([decay.shares for decay in drawn], shares, atol=4e-4)


@pytest.mark.parametrize("up", [False, True])
def test_taus_from_the_z_peak_are_polarised_as_measured(up: bool) -> None:
    spin = z_spin(91.1876, 0.0, up)
    # A_tau = 2va / (v^2 + a^2) = 0.150; transversely (v^2 - a^2) / (v^2 + a^2) = -0.989.
    assert spin.polarisation == pytest.approx(-0.150, abs=0.005)
    assert spin.correlation == pytest.approx([-0.989, 0.989, 1.0], abs=0.02)


def test_forward_and_backward_taus_differ() -> None:
    # P = -(A_tau + A_q t) / (1 + A_tau A_q t) with t = 2c / (1 + c^2), and A_q = 0.936 for down.
    expected = [-(0.150 + 0.936 * t) / (1 + 0.150 * 0.936 * t) for t in (-0.8, 0.8)]
    found = [z_spin(91.1876, cosine, False).polarisation for cosine in (-0.5, 0.5)]
    assert found == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("cosine", [-0.6, 0.0, 0.6])
def test_photons_give_unpolarised_taus(cosine: float) -> None:
    spin = z_spin(2.0, cosine, True)
    transverse = (1 - cosine**2) / (1 + cosine**2)
    assert spin.polarisation == pytest.approx(0, abs=0.002)
    assert spin.correlation == pytest.approx([transverse, -transverse, 1.0], abs=0.002)
