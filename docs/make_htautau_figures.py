"""Draw the sanity plots of docs/htautau.md from an event store, and print their numbers.

    python docs/make_htautau_figures.py data/htautau.events

The dashed curves are an independent expectation for the visible mass: a boson without transverse
momentum decays to two taus, each lepton takes the share x of its tau with density
(5 - 9 x^2 + 4 x^3) / 3, and the same thresholds are applied. Neither Pythia nor the simulated
detector has a part in it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from torchapl.paper.data.store import EventStore

MASSES = {"background": 91.19, "signal": 125.0}
NAMES = {"background": r"$Z/\gamma^* \to \tau\tau$", "signal": r"$H \to \tau\tau$"}
COLOURS = {"background": "#4477aa", "signal": "#cc3311"}
OUTPUT = Path(__file__).parent / "images" / "htautau"


def expected_visible_mass(process: str, events: int = 400_000) -> np.ndarray:
    """Visible masses of a boson at rest in the transverse plane, after the lepton thresholds."""
    rng = np.random.default_rng(0)
    mass = np.full(events, 125.0)
    cosine = rng.uniform(-1, 1, events)
    if process == "background":
        mass = 91.19 + 2.4952 / 2 * np.tan(rng.uniform(-1.5, 1.5, events))  # Breit-Wigner
        # 1 + cos^2 is the even mixture of a flat density and, with weight 1/4, that of |u|^(1/3).
        power = rng.random(events) < 0.25
        cosine = np.where(power, np.cbrt(cosine), cosine)
    # Inverse of the cumulative (5x - 3x^3 + x^4) / 3.
    grid = np.linspace(0, 1, 10_001)
    share = np.interp(rng.random((2, events)), (5 * grid - 3 * grid**3 + grid**4) / 3, grid)
    pt = np.sort(share * mass / 2 * np.sqrt(1 - cosine**2), axis=0)
    rapidity = np.abs(rng.normal(0, 1.4, events)) + np.abs(np.arctanh(cosine))
    chosen = (pt[1] > 20) & (pt[0] > 10) & (rapidity < 2.5)
    return (mass * np.sqrt(share.prod(0)))[chosen]


class Table:
    """Columns of a store by name and class."""

    def __init__(self, store: EventStore) -> None:
        self._columns = dict(zip(store.columns, store.table().T, strict=True))
        self._label = self._columns["label"] == 1

    def __call__(self, name: str, process: str) -> np.ndarray:
        return self._columns[name][self._label if process == "signal" else ~self._label]


def draw(axes: Axes, table: Table, name: str, bins: np.ndarray, title: str) -> None:
    for process in MASSES:
        axes.hist(
            table(name, process),
            bins,
            density=True,
            histtype="stepfilled",
            alpha=0.45,
            color=COLOURS[process],
            label=NAMES[process],
        )
    axes.set_xlabel(title)
    axes.set_yticks([])
    axes.set_xlim(bins[0], bins[-1])


def masses(table: Table) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    bins = np.arange(10, 131, 2.0)
    draw(left, table, "lepton_mass", bins, "visible mass of the two leptons / GeV")
    for process in MASSES:
        density, _ = np.histogram(expected_visible_mass(process), bins, density=True)
        centres = (bins[1:] + bins[:-1]) / 2
        left.plot(centres, density, "--", color=COLOURS[process], lw=1.5, label="expected")
    left.legend(frameon=False)
    draw(right, table, "missing_mass", np.arange(20, 251, 5.0), "missing mass estimate / GeV")
    for process, mass in MASSES.items():
        right.axvline(mass, color=COLOURS[process], ls=":", lw=1.5)
    figure.savefig(OUTPUT / "masses.png", dpi=110)


def surroundings(table: Table) -> None:
    figure, axes = plt.subplots(2, 3, figsize=(9, 5.4), layout="constrained")
    panels = (
        ("missing_pt", np.arange(0, 121, 3.0), "missing transverse momentum / GeV"),
        ("pair_pt", np.arange(0, 161, 4.0), "pT of leptons + missing / GeV"),
        ("jet_count", np.arange(-0.5, 6), "jets"),
        ("jet1_pt", np.arange(30, 201, 5.0), "pT of the leading jet / GeV"),
        ("lepton_delta_r", np.arange(0, 5.01, 0.1), r"$\Delta R$ of the leptons"),
        ("lepton_pt_ratio", np.linspace(0, 1, 41), "pT of the softer lepton / harder"),
    )
    for place, (name, bins, title) in zip(axes.flat, panels, strict=True):
        draw(place, table, name, bins, title)
    axes[0, 0].legend(frameon=False)
    figure.savefig(OUTPUT / "surroundings.png", dpi=110)


def numbers(table: Table) -> None:
    print(f"{'':44}{'background':>12}{'signal':>12}")

    def row(title: str, values: dict[str, float]) -> None:
        print(f"{title:44}{values['background']:12.2f}{values['signal']:12.2f}")

    row("events", {p: float(len(table("jet_count", p))) for p in MASSES})
    visible = {p: table("lepton_mass", p) for p in MASSES}
    expected = {p: expected_visible_mass(p) for p in MASSES}
    row("visible mass, mean", {p: visible[p].mean() for p in MASSES})
    row("  expected", {p: expected[p].mean() for p in MASSES})
    row("visible mass, peak", {p: peak(visible[p]) for p in MASSES})
    row("  expected", {p: peak(expected[p]) for p in MASSES})
    row(
        "visible mass above that of the boson, %",
        {p: 100 * (visible[p] > m).mean() for p, m in MASSES.items()},
    )
    collinear = {p: table("collinear_mass", p) for p in MASSES}
    row("with a collinear mass, %", {p: 100 * (collinear[p] > 0).mean() for p in MASSES})
    boosted = {p: collinear[p][(table("pair_pt", p) > 60) & (collinear[p] > 0)] for p in MASSES}
    row(
        "collinear mass, median",
        {p: float(np.median(collinear[p][collinear[p] > 0])) for p in MASSES},
    )
    row("  pair pT > 60 GeV", {p: float(np.median(boosted[p])) for p in MASSES})
    missing = {p: table("missing_mass", p) for p in MASSES}
    row("missing mass, median", {p: float(np.median(missing[p])) for p in MASSES})
    row("missing pT, mean", {p: table("missing_pt", p).mean() for p in MASSES})
    row("jets, mean", {p: table("jet_count", p).mean() for p in MASSES})
    row("without a jet, %", {p: 100 * (table("jet_count", p) == 0).mean() for p in MASSES})


def peak(values: np.ndarray) -> float:
    """Position of the maximum, from a parabola through the bins around it."""
    counts, edges = np.histogram(values, np.arange(10, 131, 4.0))
    top = int(counts.argmax())
    window = slice(top - 2, top + 3)
    centres = (edges[1:] + edges[:-1])[window] / 2
    a, b, _ = np.polyfit(centres - centres.mean(), counts[window], 2)
    return float(centres.mean() - b / (2 * a))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("store", type=Path, help="folder made by torchapl data simulate htautau")
    table = Table(EventStore(parser.parse_args().store))
    OUTPUT.mkdir(parents=True, exist_ok=True)
    masses(table)
    surroundings(table)
    numbers(table)


if __name__ == "__main__":
    main()
