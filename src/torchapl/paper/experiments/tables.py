"""The paper's tables: which experiment, or what made from its runs, fills which cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torchapl.paper.config import Published
from torchapl.paper.experiments.published import ABLATION, TABLE1, TABLE2, TABLE3


@dataclass(frozen=True)
class Cell:
    """One cell: the runs of an experiment and what is made of them.

    Attributes:
        experiment: Name in the registry.
        kind: ``"run"`` is the result itself, ``"ensemble"`` averages the scores of ``members``
            runs, ``"replaced"`` is the result with ReLU in place of the learned curves.
        published: The paper's number.
        members: Runs of an ensemble.
    """

    experiment: str
    kind: Literal["run", "ensemble", "replaced"] = "run"
    published: Published | None = None
    members: int = 1


@dataclass(frozen=True)
class Row:
    """One row: its label, its cells by column, and whether it is the paper's or ours."""

    title: str
    cells: dict[str, Cell]
    source: str = "paper"


@dataclass(frozen=True)
class Table:
    """One table of the paper, with rows of our own beside the published ones."""

    name: str
    title: str
    columns: dict[str, str]
    rows: tuple[Row, ...]

    @property
    def experiments(self) -> list[str]:
        """The experiments whose runs fill the table, each once, in order."""
        return list(
            dict.fromkeys(cell.experiment for row in self.rows for cell in row.cells.values())
        )


_TABLE1_TITLES = {
    "dropout-cnn": "CNN + ReLU (Srivastava et al. 2014)",
    "channel-out": "CNN + Channel-Out (Wang and JaJa 2013)",
    "maxout": "CNN + Maxout (Goodfellow et al. 2013)",
    "probout": "CNN + Probout (Springenberg and Riedmiller 2013)",
    "maxout-stollenga": "CNN + Maxout (Stollenga et al. 2014)",
    "dasnet": "CNN + Maxout + selective attention (Stollenga et al. 2014)",
    "cnn-relu": "CNN + ReLU",
    "cnn-leaky": "CNN + Leaky ReLU",
    "cnn-apl": "CNN + APL",
    "nin-lin": "NIN + ReLU (Lin et al. 2013)",
    "nin-dsn": "NIN + ReLU + deep supervision (Lee et al. 2014)",
    "nin-relu": "NIN + ReLU",
    "nin-leaky": "NIN + Leaky ReLU",
    "nin-apl": "NIN + APL",
}
_OWN_TITLES = {
    "prelu": "PReLU",
    "silu": "SiLU",
    "gelu": "GELU",
    "leaky25": "Leaky ReLU 0.25, fixed",
    "apl-channel": "APL per channel, started as Leaky 0.25",
    "apl-unit": "APL per unit, started as Leaky 0.25",
    "apl-frozen": "APL, frozen at the authors' start",
}
_COLUMNS = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "cifar10-aug": "CIFAR-10 augmented",
    "cifar100-aug": "CIFAR-100 augmented",
}
_FAMILIES = {"cnn": "CNN", "nin": "NIN", "resnet": "ResNet-20"}


def _table1() -> Table:
    rows = []
    for row, title in _TABLE1_TITLES.items():
        cells = {
            column: Cell(f"{column}-{row}", published=published)
            for column, published in TABLE1[row].items()
        }
        rows.append(Row(title, {column: cells[column] for column in _COLUMNS if column in cells}))
    for family, label in _FAMILIES.items():
        activations = dict(_OWN_TITLES)
        if family == "resnet":
            activations = {"relu": "ReLU", "apl": "APL per unit, authors' start"} | activations
        for name, title in activations.items():
            cells = {
                column: Cell(f"{column}-{family}-{name}") for column in ("cifar10", "cifar100")
            }
            rows.append(Row(f"{label} + {title}", cells, source="ours"))
    return Table("table1", "Test error, %", _COLUMNS, tuple(rows))


def _table2() -> Table:
    columns = {"higgs": "Higgs -> tau tau, simulated", "atlas": "ATLAS 2014"}
    rows = [
        Row("DNN + ReLU (Baldi et al. 2014)", _events("baldi", "baldi")),
        Row(
            "DNN + ReLU, ensemble of 5 (Baldi et al. 2014)",
            {
                prefix: Cell(
                    f"{prefix}-dnn-baldi",
                    "ensemble",
                    TABLE2["baldi-ensemble"] if prefix == "higgs" else None,
                    members=5,
                )
                for prefix in columns
            },
        ),
        Row("DNN + ReLU", _events("relu", "relu")),
        Row("DNN + APL", _events("apl", "apl")),
    ]
    own = {"leaky": "Leaky ReLU 0.05", "apl-leaky": "APL, started as Leaky 0.25"} | {
        name: _OWN_TITLES[name] for name in ("apl-frozen", "leaky25", "prelu", "silu", "gelu")
    }
    rows += [
        Row(f"DNN + {title}", _events(name, None), source="ours") for name, title in own.items()
    ]
    return Table("table2", "AUC and expected significance", columns, tuple(rows))


def _events(row: str, published: str | None) -> dict[str, Cell]:
    return {
        prefix: Cell(
            f"{prefix}-dnn-{row}",
            published=TABLE2[published] if published and prefix == "higgs" else None,
        )
        for prefix in ("higgs", "atlas")
    }


def _table3() -> Table:
    names = {
        "relu": ("ReLU", "cifar10-cnn-relu"),
        "s1-frozen": ("APL, S = 1, frozen", "cifar10-cnn-apl-s1-frozen"),
        "s1": ("APL, S = 1", "cifar10-cnn-apl-s1"),
        "s2": ("APL, S = 2", "cifar10-cnn-apl-s2"),
        "s5": ("APL, S = 5", "cifar10-cnn-apl"),
        "s10": ("APL, S = 10", "cifar10-cnn-apl-s10"),
    }
    rows = tuple(
        Row(title, {"cifar10": Cell(experiment, published=TABLE3[key])})
        for key, (title, experiment) in names.items()
    )
    return Table("table3", "Test error, %, by hinges per unit", {"cifar10": "CIFAR-10"}, rows)


def _ablation() -> Table:
    experiments = {
        "cifar10": ("CIFAR-10 CNN", "cifar10-cnn-apl"),
        "cifar100": ("CIFAR-100 CNN", "cifar100-cnn-apl"),
        "higgs": ("Higgs DNN", "higgs-dnn-apl"),
    }
    rows = tuple(
        Row(
            title,
            {
                "apl": Cell(experiment, published=ABLATION[key][0]),
                "replaced": Cell(experiment, "replaced", ABLATION[key][1]),
            },
        )
        for key, (title, experiment) in experiments.items()
    )
    columns = {"apl": "APL", "replaced": "ReLU in its place"}
    return Table("ablation", "Learned curves replaced by ReLU after training", columns, rows)


TABLES: dict[str, Table] = {
    table.name: table for table in (_table1(), _table2(), _table3(), _ablation())
}
