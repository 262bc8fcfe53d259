from __future__ import annotations

import math

import pytest

from torchapl.paper.config import Optim, override, override_all
from torchapl.paper.experiments import get, scaled
from torchapl.paper.schedule import learning_rate, momentum


@pytest.mark.parametrize(
    ("name", "rates"),
    [
        (
            "cifar10-cnn-apl",
            {0: 0.01, 59_999: 0.01, 60_000: 0.001, 80_000: 1e-4, 85_000: 1e-5, 89_999: 1e-5},
        ),
        ("cifar100-cnn-apl", {79_999: 0.001, 80_000: 5e-4, 100_000: 1e-4, 149_999: 1e-5}),
        ("cifar10-nin-apl", {199_999: 0.05, 200_000: 0.01, 300_000: 0.001, 310_000: 1e-4}),
        ("cifar100-nin-apl", {319_999: 1e-4, 320_000: 1e-5}),
    ],
)
def test_rates_are_those_of_the_authors(name: str, rates: dict[int, float]) -> None:
    experiment = get(name)
    for step, rate in rates.items():
        assert learning_rate(experiment.optim, step, 10**9) == pytest.approx(rate, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "epochs"),
    [
        ("cifar10-cnn-apl", 180),
        ("cifar100-cnn-apl", 300),
        ("cifar10-nin-apl", 640),
        ("cifar100-nin-apl", 660),
        ("higgs-dnn-apl", 65),
    ],
)
def test_epochs_are_those_of_the_authors(name: str, epochs: int) -> None:
    assert get(name).epochs == epochs


def test_exponential_decay_per_iteration() -> None:
    optim = get("higgs-dnn-apl").optim
    assert learning_rate(optim, 0, 1) == 0.006
    assert learning_rate(optim, 45_500_000, 1) == pytest.approx(0.006 * math.exp(-1.7927), rel=1e-3)


def test_momentum_ramp() -> None:
    optim = Optim(momentum=0.9, momentum_start=0.5)
    assert momentum(optim, 0) == pytest.approx(0.5)
    assert momentum(optim, 10_000) == pytest.approx(0.9 - 0.4 / math.e)
    assert momentum(optim, 10**7) == pytest.approx(0.9)
    assert momentum(Optim(momentum=0.5), 123) == 0.5


def test_momentum_rises_in_a_line() -> None:
    optim = Optim(momentum=0.6, momentum_start=0.5, momentum_ramp=100, momentum_rise="linear")
    rising = [momentum(optim, step) for step in (0, 50, 100, 1000)]
    assert rising == pytest.approx([0.5, 0.55, 0.6, 0.6])


def test_linear_fall_ends_at_the_floor() -> None:
    optim = Optim(lr=0.17, schedule="linear", fall_steps=1000, floor=0.01)
    rates = [learning_rate(optim, step, 1) for step in (0, 500, 1000, 5000)]
    assert rates == pytest.approx([0.17, 0.17 * 0.505, 0.0017, 0.0017])


def test_inverse_fall_is_at_the_half_after_its_steps() -> None:
    optim = Optim(lr=1.0, schedule="inverse", fall_steps=100)
    rates = [learning_rate(optim, step, 1) for step in (0, 100, 300)]
    assert rates == pytest.approx([1.0, 0.5, 0.25])


def test_exponential_decay_stops_at_the_floor() -> None:
    optim = Optim(lr=1.0, schedule="exponential", step_factor=0.5, floor=0.2)
    assert [learning_rate(optim, step, 1) for step in range(4)] == [1.0, 0.5, 0.25, 0.2]


@pytest.mark.parametrize("schedule", ["linear", "inverse"])
def test_falls_without_steps_are_refused(schedule) -> None:
    with pytest.raises(ValueError, match=r"optim\.fall_steps"):
        learning_rate(Optim(schedule=schedule), 0, 1)


@pytest.mark.parametrize("schedule", ["one-cycle", "cosine"])
def test_cycles_rise_and_fall(schedule) -> None:
    optim = Optim(lr=1.0, schedule=schedule, warmup=0.2)
    rates = [learning_rate(optim, step, 100) for step in range(100)]
    assert max(rates) == rates[20] == 1.0
    assert rates[:21] == sorted(rates[:21])
    assert rates[20:] == sorted(rates[20:], reverse=True)
    assert 0 < rates[-1] < 0.02
    assert rates[0] > 0


def test_list_without_factors_is_refused() -> None:
    with pytest.raises(ValueError, match=r"optim\.factors"):
        learning_rate(Optim(schedule="list"), 0, 1)


@pytest.mark.parametrize(
    "optim",
    [
        get("cifar10-nin-apl").optim,
        get("higgs-dnn-apl").optim,
        Optim(schedule="linear", fall_steps=250_000, floor=0.01),
        Optim(schedule="inverse", fall_steps=80_000),
    ],
)
def test_a_shortened_schedule_has_the_same_course(optim: Optim) -> None:
    short = optim.stretched(1e-3)
    for step in (0, 30, 111, 200, 301, 319):
        rate = learning_rate(optim, 1000 * step, 320_000)
        assert learning_rate(short, step, 320) == pytest.approx(rate, rel=1e-6)
        assert momentum(short, step) == pytest.approx(momentum(optim, 1000 * step), rel=1e-6)


def test_a_schedule_of_ones_own_is_not_shortened() -> None:
    experiment = get("higgs-dnn-apl")
    assert override(experiment, "optim.lr=0.01").made_for_steps == 45_500_000
    assert override(experiment, "optim.step_factor=0.9999").made_for_steps is None
    own = override_all(experiment, ["optim.step_factor=0.9999", "epochs=1"])
    assert own.optim.step_factor == 0.9999


def test_however_short_a_schedule_falls() -> None:
    short = Optim(schedule="inverse", fall_steps=5).stretched(1e-3)
    assert learning_rate(short, 1, 2) == pytest.approx(short.lr / 2)


@pytest.mark.parametrize("setting", ["epochs=42", "batch_size=25", "epochs=5", "batch_size=400"])
@pytest.mark.parametrize("name", ["cifar10-cnn-apl", "cifar10-nin-relu"])
@pytest.mark.parametrize("scale", ["paper", "study"])
def test_other_lengths_stretch_the_schedule(name: str, scale: str, setting: str) -> None:
    usual = scaled(get(name), scale)
    other = override(usual, setting)
    steps, others = (50_000 * e.epochs // e.batch_size for e in (usual, other))
    assert usual.made_for_steps == steps
    assert other.made_for_steps == pytest.approx(others, abs=1)
    for share in (0.01, 0.3, 0.6, 0.75, 0.9, 0.99):
        expected = learning_rate(usual.optim, round(share * steps), steps)
        found = learning_rate(other.optim, round(share * others), others)
        assert found == pytest.approx(expected)
        expected = momentum(usual.optim, round(share * steps))
        assert momentum(other.optim, round(share * others)) == pytest.approx(expected, rel=1e-2)
