from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch
from matplotlib.figure import Figure

from torchapl import apl
from torchapl.paper.report import figures
from torchapl.paper.report.gallery import write_figures
from torchapl.runs.curves import CURVES, Layer, RunCurves, spread
from torchapl.runs.records import write_tensors


@pytest.fixture(scope="module")
def events(runs: Path) -> RunCurves:
    return RunCurves(runs / "atlas-dnn-apl" / "smoke" / "0")


@pytest.fixture(scope="module")
def images(runs: Path) -> RunCurves:
    return RunCurves(runs / "cifar10-cnn-apl-s2" / "smoke" / "0")


def drawn(axes: object) -> list[list[float]]:
    return [list(map(float, line.get_ydata())) for line in axes.get_lines()]


def test_initial_dashed_and_learned_solid(events: RunCurves) -> None:
    figure = figures.initial_and_learned(events, units=2)
    assert len(figure.axes) == 2 * len(events.learned)
    start, end = figure.axes[0].get_lines()
    assert (start.get_linestyle(), end.get_linestyle()) == ("--", "-")
    name = next(iter(events.learned))
    x = torch.as_tensor(end.get_xdata())
    assert torch.allclose(torch.as_tensor(end.get_ydata()), events.learned[name].values(x)[0])
    assert torch.allclose(torch.as_tensor(start.get_ydata()), events.initial[name].values(x)[0])


def test_overlaid_draws_at_most_so_many(images: RunCurves) -> None:
    figure = figures.overlaid(images, at_most=10)
    for axes, layer in zip(figure.axes, images.learned.values(), strict=True):
        lines = axes.collections[0].get_segments()
        assert len(lines) == 10
        x, y = torch.as_tensor(lines[0]).float().T
        assert torch.allclose(y, layer.values(x)[0])


def test_groups_have_the_counts_of_the_sign_at_minus_one(images: RunCurves) -> None:
    figure = figures.grouped(images)
    for axes, layer in zip(figure.axes, images.learned.values(), strict=True):
        at = layer.values(torch.tensor([-1.0]))[:, 0]
        labels = [text.get_text() for text in axes.get_legend().get_texts()]
        assert labels == [
            f"h(-1) < 0: {int((at < 0).sum())}",
            f"h(-1) >= 0: {int((at >= 0).sum())}",
        ]


def titles(figure: Figure) -> dict[str, int]:
    """Return the unit of each panel by what its title says of it."""
    texts = [axes.get_title().split(": unit ") for axes in figure.axes]
    return {kind: int(unit) for kind, unit in texts}


@pytest.mark.parametrize("hinges", [1, 2, 5, 10])
def test_the_convex_sample_is_convex(hinges: int) -> None:
    torch.manual_seed(hinges)
    slope, offset = torch.rand(hinges, 4000) - 0.5, torch.randn(hinges, 4000) / 2
    # Steep to both sides: the clearest bend upwards, and not convex.
    slope[0, 7], slope[-1, 7] = 9.0, 9.0 if hinges == 1 else -1.0
    # With ten slopes of random sign, one unit in a thousand is convex.
    slope[:, 11] = slope[:, 11].abs()
    layer = Layer("act1", slope, offset)
    units = titles(figures.sample_curves(layer))
    x = torch.linspace(-3, 3, 601, dtype=torch.float64)
    curve = apl(x[:, None].expand(-1, 4000), slope.double(), offset.double()).T
    second = curve[:, 2:] - 2 * curve[:, 1:-1] + curve[:, :-2]
    assert second[units["convex"]].min() > -1e-12
    assert second[units["not convex"]].min() < -1e-3


def test_a_hinge_at_the_bend_of_relu_does_not_make_a_leaky_unit_concave() -> None:
    layer = Layer("act1", torch.full((1, 3), -0.25), torch.zeros(1, 3))
    assert list(titles(figures.sample_curves(layer))) == ["convex"]


def test_a_layer_without_convex_units_shows_none() -> None:
    layer = Layer("act1", torch.full((1, 3), -0.25), torch.full((1, 3), -1.0))
    assert list(titles(figures.sample_curves(layer))) == ["not convex"]


def test_sample_curves_mark_their_hinges(events: RunCurves) -> None:
    layer = next(iter(events.learned.values()))
    figure = figures.sample_curves(layer)
    for axes in figure.axes:
        _, marks = axes.get_lines()
        assert len(marks.get_xdata()) == len(layer.slope) + 1
    assert "not convex" in figure.axes[1].get_title()


def test_heat_maps_are_means_over_channels(images: RunCurves) -> None:
    figure = figures.heat_maps(images)
    layer = next(iter(images.learned.values()))
    values = layer.values(torch.tensor([-1.0])).reshape(layer.unit_shape).mean(0)
    shown = figure.axes[0].get_images()[0].get_array()
    assert torch.allclose(torch.as_tensor(shown.filled()), values)


def test_layers_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    names = [f"layers.act{number}" for number in (1, 2, 3, 10, 11)]
    kinds = ("slope", "offset")
    tensors = {f"learned/{name}/{kind}": torch.ones(1, 2) for name in names for kind in kinds}
    write_tensors(tmp_path / CURVES, tensors)
    assert list(RunCurves(tmp_path).learned) == names


def test_figures_say_what_they_lack(events: RunCurves, runs: Path) -> None:
    with pytest.raises(ValueError, match="no layer of this run"):
        figures.heat_maps(events)
    with pytest.raises(ValueError, match="no histograms"):
        figures.inputs_behind_curves(RunCurves(runs / "cifar10-cnn-apl-s2" / "smoke" / "2"))
    with pytest.raises(FileNotFoundError, match="not learned"):
        RunCurves(runs / "cifar10-cnn-relu" / "smoke" / "0")


@pytest.mark.parametrize("draw", [figures.movement, figures.inputs_behind_curves])
def test_every_layer_has_its_panels(draw: Callable[[RunCurves], Figure], images: RunCurves) -> None:
    titles = [axes.get_title() for axes in draw(images).axes]
    assert set(images.learned) <= set(titles)


def test_learning_curves_have_bands() -> None:
    seeds = [[{"epoch": e, "test_error": 10.0 * s + e} for e in (1, 2)] for s in (1, 2)]
    figure = figures.learning_curves({"a": seeds})
    (axes,) = figure.axes
    assert drawn(axes) == [[16.0, 17.0]]
    band = axes.collections[0].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == (11.0, 22.0)


def test_error_against_hinges() -> None:
    figure = figures.error_against_hinges({2: [10.0, 12.0], 1: [14.0]}, [13.0, 15.0])
    lines = drawn(figure.axes[0])
    assert [14.0, 11.0] in lines
    assert [14.0, 14.0] in lines


def test_classifier_draws_roc_and_cuts() -> None:
    scores, labels = torch.rand(1000), torch.arange(1000) % 2
    figure = figures.classifier({"chance": (scores, labels)})
    roc, cuts = figure.axes
    assert len(roc.get_lines()) == 2
    assert len(cuts.get_lines()[0].get_xdata()) == 100


def test_spread() -> None:
    assert spread(3, 10).tolist() == [0, 1, 2]
    assert spread(0, 3).tolist() == []


@pytest.mark.slow
def test_gallery_writes_every_figure_that_the_runs_allow(runs: Path, tmp_path: Path) -> None:
    written = write_figures(runs, tmp_path)
    names = {path.name for path in written}
    assert {
        "atlas-dnn-apl-initial-and-learned.png",
        "atlas-dnn-apl-inputs.png",
        "cifar10-cnn-apl-s2-heat-maps.png",
        "learning-atlas-higgs-embedded-test_auc.png",
        "classifier.png",
    } <= names
    assert "atlas-dnn-apl-heat-maps.png" not in names
    for path in written:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.with_suffix(".pdf").read_bytes().startswith(b"%PDF")


def test_curves_of_an_unfinished_run_stand_beside_their_own_start(tmp_path: Path) -> None:
    # As training stores a large layer: all units at the start, evenly spaced ones afterwards.
    mark = torch.arange(12.0).reshape(1, 3, 2, 2)
    tensors = {f"initial/act/{kind}": mark.clone() for kind in ("slope", "offset")}
    tensors |= {
        f"epoch_0001/act/{kind}": mark.flatten(1)[:, ::2].clone() for kind in ("slope", "offset")
    }
    safetensors.torch.save_file(tensors, tmp_path / "curves.safetensors")
    figure = figures.initial_and_learned(RunCurves(tmp_path), units=3)
    assert [axes.get_title() for axes in figure.axes] == [f"act, unit {n}" for n in (0, 4, 8)]
    for axes in figure.axes:
        start, end = drawn(axes)
        assert start == end
    for axes in figures.movement(RunCurves(tmp_path)).axes:
        points = axes.get_lines()[0]
        assert list(points.get_xdata()) == list(points.get_ydata())


def test_layers_of_few_units_leave_no_empty_panels(events: RunCurves) -> None:
    name, layer = next(iter(events.learned.items()))
    few = {name: Layer(name, layer.slope[:, :2], layer.offset[:, :2])}
    events = copy.copy(events)
    events.moments = {"initial": few, "learned": few}
    assert len(figures.initial_and_learned(events).axes) == 2
