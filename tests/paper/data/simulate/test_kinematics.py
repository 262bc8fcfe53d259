from __future__ import annotations

import numpy as np
import pytest

from torchapl.paper.data.simulate import kinematics as k

LEPTON = np.array([40.0, 0.0, 30.0, 50.0])
OTHER = np.array([0.0, 24.0, 7.0, 25.0])


def test_reads_a_momentum() -> None:
    assert k.pt(LEPTON) == 40
    assert k.eta(LEPTON) == pytest.approx(np.log(2))
    assert k.phi(OTHER) == pytest.approx(np.pi / 2)
    assert k.mass(LEPTON + OTHER) == pytest.approx(np.sqrt(2080))
    assert k.delta_r(LEPTON, OTHER) == pytest.approx(np.hypot(np.log(1.5), np.pi / 2))


def test_nothing_has_no_direction_but_no_nan_either() -> None:
    nothing = np.zeros(4)
    assert [k.pt(nothing), k.eta(nothing), k.phi(nothing), k.mass(nothing)] == [0, 0, 0, 0]


def test_difference_of_azimuth_goes_the_short_way_round() -> None:
    angles = np.array([3.1, -3.1])
    one, other = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert k.delta_phi(one, other) == pytest.approx(2 * np.pi - 6.2)


def test_boost_keeps_masses_and_is_undone_by_its_inverse() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(2, 100, 3)) * 20
    momentum, frame = (
        np.concatenate([v, np.sqrt((v**2).sum(1, keepdims=True) + 1.5**2)], axis=1) for v in vectors
    )
    there = k.boost(momentum, frame)
    np.testing.assert_allclose(k.mass(there), 1.5, rtol=1e-6)
    np.testing.assert_allclose(k.boost(there, frame, inverse=True), momentum, atol=1e-9)
    # What rests in the frame moves like the frame.
    rest = np.tile([0.0, 0.0, 0.0, 1.5], (100, 1))
    np.testing.assert_allclose(k.boost(rest, frame), frame, atol=1e-9)
