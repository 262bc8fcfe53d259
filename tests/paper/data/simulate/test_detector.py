from __future__ import annotations

import numpy as np
import pytest

from torchapl.paper.data.simulate.detector import accepted, measure, measure_leptons
from torchapl.paper.data.simulate.generator import Surroundings
from torchapl.paper.data.simulate.kinematics import Array, pt


class Exact(np.random.Generator):
    """A detector without errors."""

    def __init__(self) -> None:
        super().__init__(np.random.PCG64(0))

    def standard_normal(self, size: tuple[int, ...]) -> Array:
        return np.zeros(size)


def momentum(size: float, eta: float, phi: float) -> list[float]:
    """Massless."""
    return [size * np.cos(phi), size * np.sin(phi), size * np.sinh(eta), size * np.cosh(eta)]


def leptons(first: float = 30, second: float = 15, eta: float = 0.0, phi: float = 2.0) -> Array:
    return np.array([[momentum(first, 0, 0), momentum(second, eta, phi)]])


def surroundings(*jets: list[float], soft: tuple[float, float] = (0.0, 0.0)) -> Surroundings:
    padded = np.array([list(jets) + [[0.0] * 4] * (10 - len(jets))])
    recoil = padded[:, :, :2].sum(1) + soft
    return Surroundings(padded, recoil, pt(padded).sum(1) + np.hypot(*soft))


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        (leptons(), True),
        (leptons(first=19.9), False),
        (leptons(second=9.9), False),
        (leptons(first=20.1, second=10.1), True),
        (leptons(eta=2.49), True),
        (leptons(eta=-2.51), False),
        (leptons(phi=0.39), False),
        (leptons(phi=0.41), True),
    ],
)
def test_acceptance(pair: Array, expected: bool) -> None:
    assert accepted(pair).tolist() == [expected]


def test_leptons_come_by_falling_pt() -> None:
    swapped = leptons()[:, ::-1]
    np.testing.assert_array_equal(measure_leptons(swapped, Exact()), leptons())


def test_missing_momentum_balances_what_was_seen() -> None:
    around = surroundings(momentum(60, 1, 4.0), momentum(16, 0, 1.0), soft=(3.0, -4.0))
    missing = measure(leptons(), around, Exact()).missing
    np.testing.assert_allclose(missing, -(around.recoil + leptons()[:, :, :2].sum(1)))


def test_only_hard_central_jets_away_from_leptons_count() -> None:
    chosen = [momentum(50, 0, 4.0), momentum(35, 4.4, 1.0)]
    around = surroundings(
        chosen[1], momentum(29.9, 0, 5.0), momentum(90, 4.6, 5), momentum(80, 0.1, 0.2), chosen[0]
    )
    jets = measure(leptons(), around, Exact()).jets
    np.testing.assert_allclose(jets[0, :2], chosen)
    assert not jets[0, 2:].any()


EVENTS = 20_000


def spread(values: Array) -> float:
    return float(values.std() / values.mean())


def test_lepton_resolution_is_that_of_electrons_and_muons_mixed() -> None:
    seen = measure_leptons(np.tile(leptons(100, 40), (EVENTS, 1, 1)), np.random.default_rng(0))
    for place, size in ((0, 100), (1, 40)):
        electron = 0.1**2 / size + 0.01**2
        muon = 0.015**2 + (2e-4 * size) ** 2
        share = 17.82 / (17.82 + 17.39)
        expected = np.sqrt(share * electron + (1 - share) * muon)
        assert spread(pt(seen[:, place])) == pytest.approx(expected, rel=0.03)


def repeated(around: Surroundings) -> Surroundings:
    return Surroundings(
        np.repeat(around.jets, EVENTS, 0),
        np.repeat(around.recoil, EVENTS, 0),
        np.repeat(around.activity, EVENTS, 0),
    )


def test_jet_resolution() -> None:
    around = repeated(surroundings(momentum(100, 0, 4.0)))
    jets = measure(np.tile(leptons(), (EVENTS, 1, 1)), around, np.random.default_rng(0)).jets
    expected = np.sqrt(0.03**2 + 0.08**2 + 0.05**2)
    assert spread(pt(jets[:, 0])) == pytest.approx(expected, rel=0.03)


def test_soft_resolution_grows_with_the_activity_outside_jets() -> None:
    for soft, width in ((0.0, 6.0), (64.0, np.hypot(6.0, 4.0))):
        around = repeated(surroundings(soft=(soft, 0.0)))
        pair = np.tile(leptons(), (EVENTS, 1, 1))
        missing = measure(pair, around, np.random.default_rng(0)).missing
        np.testing.assert_allclose(missing.std(0), width, rtol=0.03)
