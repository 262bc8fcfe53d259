"""The tables, four of the paper and one of our own: which runs fill which cell, and its peers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from torchapl.paper.config import Published
from torchapl.paper.data import DATA_SETS
from torchapl.paper.experiments import cifar, higgs, modern
from torchapl.paper.experiments.key import Key
from torchapl.paper.experiments.published import ABLATION, TABLE1, TABLE2, TABLE3
from torchapl.paper.experiments.rows import CHOICES, DEFAULT, DEFAULT_FROZEN, LEAKY25
from torchapl.paper.nets import NETWORKS


@dataclass(frozen=True)
class Metric:
    """A number of a result that a table shows.

    Attributes:
        name: In result.json.
        title: How tables call it.
        digits: After the point, as shown.
        best: Its value for a perfect classifier; None where there is none.
        published: Which two fields of :class:`Published` are its mean and deviation.
        published_digits: Of these two, as the paper writes them.
    """

    name: str
    title: str
    digits: int
    best: float | None
    published: tuple[str, str] = ("mean", "std")
    published_digits: tuple[int, int] = (2, 2)


ERROR = Metric("test_error", "test error, %", 2, best=0.0)
AUC = Metric("test_auc", "AUC", 4, best=1.0, published_digits=(3, 4))
SIGNIFICANCE = Metric(
    "test_significance_histogram",
    "expected significance, sigma",
    2,
    best=None,
    published=("significance", "significance_std"),
    published_digits=(2, 3),
)
EVENTS = (AUC, SIGNIFICANCE)
# Of held-out training rows, for what is not settled yet: test rows must not choose.
HELD_OUT = (
    Metric("valid_error", "validation error, %", 2, best=0.0),
    Metric("valid_auc", "validation AUC", 4, best=1.0),
)


@dataclass(frozen=True)
class Cell:
    """One cell: the runs of an experiment and what is made of them.

    Attributes:
        experiment: Name in the registry.
        metrics: What is shown of the runs.
        settings: Assignments that the cell adds to its experiment.
        choices: Assignments among which the validation rows decide.
        rate_from: The experiment whose runs choose the learning rate, at scales that choose it.
        kind: ``"run"`` is the result itself, ``"ensemble"`` averages the scores of ``members``
            runs, ``"replaced"`` is the result with ReLU in place of the learned curves.
        members: Runs of an ensemble.
        seeds: Runs that the paper made.
        held_out: Whether the runs that count hold out training rows, too, and are measured by them.
        published: The paper's number.
        peers: The cells that it can be compared with, by row.
    """

    experiment: str
    metrics: tuple[Metric, ...]
    settings: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    rate_from: str | None = None
    kind: Literal["run", "ensemble", "replaced"] = "run"
    members: int = 1
    seeds: int = 5
    held_out: bool = False
    published: Published | None = None
    peers: Mapping[str, Cell] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class Row:
    """One row: its label and its cells by column."""

    title: str
    cells: dict[str, Cell]


@dataclass(frozen=True)
class Table:
    """One table: the paper's, with rows of our own beside the published ones, or our own."""

    name: str
    title: str
    columns: dict[str, str]
    rows: tuple[Row, ...]

    @property
    def cells(self) -> list[Cell]:
        """All cells, row by row."""
        return [cell for row in self.rows for cell in row.cells.values()]

    @property
    def experiments(self) -> list[str]:
        """The experiments whose runs fill the table, each once, in order."""
        return list(dict.fromkeys(cell.experiment for cell in self.cells))


def _peers(
    data: str, augmented: bool, network: str, rows: tuple[str, ...], chosen: tuple[str, ...]
) -> dict[str, Cell]:
    """Return the cells of one network in one column by row, each a peer of all others."""
    peers: dict[str, Cell] = {}
    for row in rows:
        key = Key(data, augmented, network, row)
        is_images = network != "dnn"
        peers[row] = Cell(
            key.name,
            (ERROR,) if is_images else EVENTS,
            choices=CHOICES[row] if row in chosen else (),
            # CIFAR-10 decides for the other columns of images.
            rate_from=Key("cifar10", False, network, row).name if is_images else key.name,
            seeds=5 if is_images else 4,
            peers=peers,
        )
    return peers


_CIFAR_ROWS = ("relu", "leaky", "apl", "apl-frozen", *(row.name for row in cifar.OWN_ROWS))
# By network, then column.
_CIFAR = {
    network: {
        Key(data, augmented, network).column: _peers(
            data, augmented, network, _CIFAR_ROWS, ("leaky", "apl")
        )
        for data, augmented in cifar.COLUMNS
    }
    for network in cifar.NETWORKS_WITH_ROWS
}
_EVENT_ROWS = (*higgs.PUBLISHED_ROWS, *higgs.OWN_ROWS)
_EVENTS = {
    data: _peers(data, False, "dnn", tuple(row.name for row in _EVENT_ROWS), ("apl",))
    for data in ("higgs", "atlas", "uci-higgs")
}
_COLUMNS = {
    Key(data, augmented, "").column: DATA_SETS.get(data).title + (" augmented" if augmented else "")
    for data, augmented in cifar.COLUMNS
}
_FROZEN = "APL, frozen at the authors' start"


def _rival(network: str, title: str, published: Mapping[str, Published]) -> Row:
    cells = {}
    for data, augmented in cifar.COLUMNS:
        key = Key(data, augmented, network)
        if key.column in published:
            cells[key.column] = Cell(
                key.name,
                (ERROR,),
                rate_from=Key("cifar10", False, network).name,
                published=published[key.column],
                # The authors' network with ReLU is what all others are measured by.
                peers=_CIFAR["cnn"][key.column],
            )
    return Row(title, cells)


def _published(network: str, row: str, title: str) -> Row:
    numbers = TABLE1[network, row]
    cells = {
        column: replace(_CIFAR[network][column][row], published=numbers[column])
        for column in _COLUMNS
        if column in numbers
    }
    return Row(title, cells)


def _own(network: str, row: str, title: str) -> Row:
    # With augmentation, where the paper has ReLU and APL alone: the best fixed rival and ours.
    augmented = network != "resnet" and row in ("silu", DEFAULT.name)
    columns = _COLUMNS if augmented else ("cifar10", "cifar100")
    return Row(title, {column: _CIFAR[network][column][row] for column in columns})


def _table1() -> Table:
    def rival(network: str) -> Row:
        return _rival(network, NETWORKS.get(network).title, TABLE1[network, ""])

    activations = {"relu": "ReLU", "leaky": "Leaky ReLU", "apl": "APL"}
    rows = [rival(name) for name in ("dropout-cnn", "channel-out", "maxout", "probout")]
    stollenga = TABLE1["maxout", "stollenga"]
    rows += [_rival("maxout", "CNN + Maxout (Stollenga et al. 2014)", stollenga), rival("dasnet")]
    rows += [_published("cnn", row, f"CNN + {title}") for row, title in activations.items()]
    rows += [rival(name) for name in ("nin-lin", "nin-dsn")]
    rows += [_published("nin", row, f"NIN + {title}") for row, title in activations.items()]
    for network, label in {"cnn": "CNN", "nin": "NIN", "resnet": "ResNet-20"}.items():
        own = {row.name: row.title for row in cifar.OWN_ROWS} | {"apl-frozen": _FROZEN}
        if network == "resnet":
            own = {"relu": "ReLU", "apl": "APL per unit, authors' start"} | own
        rows += [_own(network, row, f"{label} + {title}") for row, title in own.items()]
    return Table("table1", "CIFAR-10 and CIFAR-100", _COLUMNS, tuple(rows))


def _table2() -> Table:
    columns = {data: DATA_SETS.get(higgs.DATA_SETS[data]).title for data in ("higgs", "atlas")}

    def row(name: str, title: str, published: str = "", members: int = 1) -> Row:
        cells = {
            data: replace(
                peers[name],
                kind="run" if members == 1 else "ensemble",
                members=members,
                published=TABLE2[published] if published and data == "higgs" else None,
            )
            for data, peers in _EVENTS.items()
            if data in columns
        }
        return Row(f"DNN + {title}", cells)

    rows = [
        row("baldi", "ReLU (Baldi et al. 2014)", "baldi"),
        row("baldi", "ReLU, ensemble of 5 (Baldi et al. 2014)", "baldi-ensemble", members=5),
        row("relu", "ReLU", "relu"),
        row("apl", "APL", "apl"),
        *(row(own.name, own.title) for own in higgs.OWN_ROWS),
    ]
    return Table("table2", "Higgs -> tau tau", columns, tuple(rows))


def _table3() -> Table:
    peers = dict(_CIFAR["cnn"]["cifar10"])
    # Row: title, experiment, and the one that decides its learning rate.
    rows = {
        "relu": ("ReLU", "relu", "relu"),
        "s1-frozen": ("APL, S = 1, frozen", "apl-s1-frozen", "apl-s1-frozen"),
        "s1": ("APL, S = 1", "apl-s1", "apl"),
        "s2": ("APL, S = 2", "apl-s2", "apl"),
        "s5": ("APL, S = 5", "apl", "apl"),
        "s10": ("APL, S = 10", "apl-s10", "apl"),
    }
    cells = {
        row: Cell(
            Key("cifar10", False, "cnn", name).name,
            (ERROR,),
            rate_from=Key("cifar10", False, "cnn", rate).name,
            published=TABLE3[row],
            peers=peers,
        )
        for row, (_, name, rate) in rows.items()
    }
    # Learned hinges are compared with frozen ones, too, and with more.
    for row, cell in cells.items():
        peers.setdefault(rows[row][1], cell)
    columns = {"cifar10": _COLUMNS["cifar10"]}
    filled = tuple(Row(rows[row][0], {"cifar10": cell}) for row, cell in cells.items())
    return Table("table3", "Hinges per unit", columns, filled)


def _ablation() -> Table:
    cells = {
        "CIFAR-10 CNN": (_CIFAR["cnn"]["cifar10"]["apl"], ABLATION["cifar10"]),
        "CIFAR-100 CNN": (_CIFAR["cnn"]["cifar100"]["apl"], ABLATION["cifar100"]),
        "Higgs DNN": (_EVENTS["higgs"]["apl"], ABLATION["higgs"]),
    }
    rows = tuple(
        Row(
            title,
            {
                "apl": replace(cell, published=learned),
                "replaced": replace(cell, kind="replaced", published=replaced),
            },
        )
        for title, (cell, (learned, replaced)) in cells.items()
    )
    columns = {"apl": "APL", "replaced": "ReLU in its place"}
    return Table("ablation", "Learned curves replaced by ReLU after training", columns, rows)


def _modern() -> Table:
    column = modern.key("").column
    peers: dict[str, Cell] = {}
    for row in modern.ROWS:
        peers[row.name] = Cell(modern.key(row.name).name, (ERROR,), peers=peers)
    title = NETWORKS.get(modern.NET).title
    rows = tuple(Row(f"{title} + {row.title}", {column: peers[row.name]}) for row in modern.ROWS)
    return Table("modern", "A modern network", {column: _COLUMNS[column]}, rows)


def _activations() -> Table:
    """Return what the library does unless told otherwise beside fixed and simpler activations."""
    columns: dict[str, str] = {}
    peers: dict[str, Mapping[str, Cell]] = {}
    for network, title in (("cnn", "CNN"), ("nin", "NIN")):
        for data in ("cifar10", "cifar100"):
            columns[f"{data}-{network}"] = f"{DATA_SETS.get(data).title}, {title}"
            peers[f"{data}-{network}"] = _CIFAR[network][data]
    for data, cells in _EVENTS.items():
        columns[data] = DATA_SETS.get(higgs.DATA_SETS[data]).title
        peers[data] = cells
    titles = {"relu": "ReLU", **{row.name: row.title for row in cifar.OWN_ROWS}}
    names = ("relu", LEAKY25.name, "prelu", "silu", "gelu", DEFAULT_FROZEN.name, DEFAULT.name)
    rows = tuple(
        Row(titles[name], {column: cells[name] for column, cells in peers.items()})
        for name in names
    )
    return Table("activations", "The default curves and fixed activations", columns, rows)


TABLES: dict[str, Table] = {
    table.name: table
    for table in (_table1(), _table2(), _table3(), _ablation(), _activations(), _modern())
}
