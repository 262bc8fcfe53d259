from __future__ import annotations

import numpy as np
import pytest

from torchapl.paper.data.simulate.detector import Measured
from torchapl.paper.data.simulate.features import FEATURES, HIGH_LEVEL, LOW_LEVEL, features
from torchapl.paper.data.simulate.kinematics import Array

LEPTONS = [[40.0, 0.0, 30.0, 50.0], [0.0, 24.0, 7.0, 25.0]]
JETS = [[-48.0, 0.0, 14.0, 50.0], [0.0, -36.0, 15.0, 39.0]]
NO_JETS = [[0.0] * 4] * 2


def event(
    leptons: list[list[float]] = LEPTONS,
    jets: list[list[float]] = NO_JETS,
    missing: tuple[float, float] = (20.0, 12.0),
) -> dict[str, float]:
    measured = Measured(np.array([leptons]), np.array([jets]), np.array([missing]))
    return dict(zip(FEATURES, features(measured)[0].tolist(), strict=True))


def test_ten_low_level_then_fifteen_high_level_features() -> None:
    assert (len(LOW_LEVEL), len(HIGH_LEVEL), len(set(FEATURES))) == (10, 15, 25)
    assert FEATURES[:10] == LOW_LEVEL


def test_every_feature_of_an_event_worked_out_by_hand() -> None:
    met = np.sqrt(544)  # of (20, 12), half the sum of the leptons' transverse momenta
    mt1, mt2, mt12 = np.sqrt(80 * (met - 20)), np.sqrt(48 * (met - 12)), np.sqrt(2 * 40 * 24)
    # The momentum tensor of the four objects, written out.
    tensor = np.array([[3904, 0, 528], [0, 1872, -372], [528, -372, 1370]])
    sphericity = 1.5 * (1 - np.linalg.eigvals(tensor / 7146).max())
    energy, (x, y, z) = 50 + 25 + 50 + 39, (40 - 48, 24 - 36, 30 + 7 + 14 + 15)
    expected = {
        "lepton1_pt": 40,
        "lepton1_eta": np.log(2),
        "lepton1_phi": 0,
        "lepton2_pt": 24,
        "lepton2_eta": np.log(4 / 3),
        "lepton2_phi": np.pi / 2,
        "missing_pt": met,
        "missing_phi": np.arctan(0.6),
        "jet_count": 2,
        "jet1_pt": 48,
        "axial_missing_pt": 1088 / np.sqrt(2176),
        "sum_pt": 40 + 24 + 48 + 36 + met,
        "relative_missing_pt": 12,
        "lepton_delta_phi": np.pi / 2,
        "lepton_delta_eta": np.log(1.5),
        "lepton_delta_r": np.hypot(np.log(1.5), np.pi / 2),
        "lepton_mass": np.sqrt(2080),
        "sphericity": sphericity,
        "transverse_sphericity": 2 * 1872 / (3904 + 1872),
        "visible_mass": np.sqrt(energy**2 - x**2 - y**2 - z**2),
        "lepton_pt_ratio": 24 / 40,
        "collinear_mass": 1.5 * np.sqrt(2080),  # each lepton has 2/3 of its tau
        "total_transverse_mass": np.sqrt(mt1**2 + mt2**2 + mt12**2),
        "pair_pt": np.sqrt(60**2 + 36**2),
    }
    found = event(jets=JETS)
    assert 60 < found.pop("missing_mass") < 100
    assert found == pytest.approx(expected, rel=1e-12)


def test_jet_features_vanish_without_jets() -> None:
    names = ("jet1_pt", "jet_count")
    none, one = event(), event(jets=[JETS[0], NO_JETS[0]])
    assert [none[name] for name in names] == [0, 0]
    assert [one[name] for name in names] == [48, 1]
    assert none["visible_mass"] == none["lepton_mass"]


@pytest.mark.parametrize(
    "missing",
    [
        (-20.0, -12.0),  # behind both leptons: the fractions exceed 1
        (20.0, -12.0),  # outside the leptons
        (4000.0, 2400.0),  # the leptons would be 1 % of their taus
    ],
)
def test_collinear_mass_is_zero_where_the_approximation_fails(missing: tuple[float, float]) -> None:
    assert event(missing=missing)["collinear_mass"] == 0


def test_leptons_in_one_plane_with_the_beam_give_finite_features() -> None:
    back = [[40.0, 0.0, 30.0, 50.0], [-24.0, 0.0, 7.0, 25.0]]
    for missing in ((10.0, 0.0), (0.0, 10.0), (0.0, 0.0)):
        values = event(leptons=back, missing=missing)
        assert np.isfinite(list(values.values())).all()
        assert values["collinear_mass"] == 0 or missing == (0.0, 0.0)


def test_missing_momentum_away_from_everything_counts_whole() -> None:
    assert event(missing=(-20.0, -12.0))["relative_missing_pt"] == pytest.approx(np.sqrt(544))
    # A jet behind it takes its part.
    jets = [[-48.0, 0.0, 14.0, 50.0], NO_JETS[0]]
    assert event(jets=jets, missing=(-20.0, -12.0))["relative_missing_pt"] == pytest.approx(12)


@pytest.mark.parametrize(
    ("directions", "expected", "transverse"),
    [
        (([1, 0, 0], [-1, 0, 0]), 0.0, 0.0),
        (([1, 0, 0], [0, 1, 0]), 0.75, 1.0),
        (([1, 0, 0], [0, 1, 0], [0, 0, 1]), 1.0, 1.0),
    ],
)
def test_sphericity(directions: tuple[list[int], ...], expected: float, transverse: float) -> None:
    objects = [[*(30.0 * x for x in direction), 30.0] for direction in directions]
    jets = [*objects[2:], *NO_JETS][:2]
    found = event(objects[:2], jets)
    assert found["sphericity"] == pytest.approx(expected)
    assert found["transverse_sphericity"] == pytest.approx(transverse)


def rotated(momenta: Array, angle: float) -> Array:
    turned = momenta.copy()
    turned[..., 0] = np.cos(angle) * momenta[..., 0] - np.sin(angle) * momenta[..., 1]
    turned[..., 1] = np.sin(angle) * momenta[..., 0] + np.cos(angle) * momenta[..., 1]
    return turned


def test_only_azimuths_change_when_an_event_is_turned() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(500, 4, 3)) * 40
    momenta = np.concatenate([vectors, np.linalg.norm(vectors, axis=2, keepdims=True)], axis=2)
    leptons, jets, missing = momenta[:, :2], momenta[:, 2:], rng.normal(size=(500, 2)) * 30
    before = features(Measured(leptons, jets, missing))
    after = features(Measured(*(rotated(part, 1.0) for part in (leptons, jets, missing))))
    same = [i for i, name in enumerate(FEATURES) if not name.endswith("_phi") or "delta" in name]
    np.testing.assert_allclose(after[:, same], before[:, same], rtol=1e-6, atol=1e-6)
    assert len(same) == 22
