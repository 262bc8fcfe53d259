"""The same experiment with several activations: which is best for a network?"""

from __future__ import annotations

import dataclasses
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchapl.paper.activations import Activation
from torchapl.paper.data import DATA_SETS
from torchapl.paper.experiments import Cell, Row, Table, get, scaled
from torchapl.paper.experiments.tables import AUC, ERROR, HELD_OUT
from torchapl.paper.sweep.plan import Sweep
from torchapl.paper.sweep.render import row_title
from torchapl.runs.records import DamagedError, naming, read_json, write_json

# Factors of the experiment's learning rate among which validation rows decide for every activation.
RATES = (0.3, 1.0, 3.0)
_FILE = "{name}.comparison.json"


@dataclass(frozen=True)
class Comparison:
    """Which activations of which experiment are compared, and how.

    Attributes:
        experiment: Its name.
        activations: As texts; each is a row.
        scale: Of the experiment.
        settings: Further changed settings, the same for all.
        rates: Factors of the learning rate to choose from; none to choose none.
        selection_seeds: Runs of every candidate.
        baseline: The activation that the others are compared with.
        held_out: Whether held-out training rows measure the runs, in place of the test rows.
    """

    experiment: str
    activations: tuple[str, ...]
    scale: str = "paper"
    settings: tuple[str, ...] = ()
    rates: tuple[float, ...] = RATES
    selection_seeds: int = 1
    baseline: str = "relu"
    held_out: bool = False

    def __post_init__(self) -> None:
        for text in self.activations:
            Activation.parse(text)
        if self.baseline not in self.activations:
            raise ValueError(
                f"baseline must be one of {', '.join(self.activations)}, got {self.baseline!r}"
            )

    def table(self) -> Table:
        """Return the table, one row for each activation."""
        data = scaled(get(self.experiment), self.scale).data.name
        peers: dict[str, Cell] = {}
        for text in self.activations:
            settings = (f"activation={text}", *self.settings)
            metrics = HELD_OUT if self.held_out else (ERROR, AUC)
            peers[text] = Cell(
                self.experiment, metrics, settings, held_out=self.held_out, peers=peers
            )
        rows = tuple(Row(row_title(text), {data: cell}) for text, cell in peers.items())
        columns = {data: DATA_SETS.get(data).title}
        return Table(self.experiment, "activations compared", columns, rows)

    def sweep(self, seeds: int | None = None) -> Sweep:
        """Return how the runs are made and chosen."""
        return Sweep(self.scale, seeds, self.selection_seeds, self.rates)

    def save(self, root: Path) -> None:
        """Keep it beside its runs, for the report."""
        root.mkdir(parents=True, exist_ok=True)
        write_json(root / _FILE.format(name=self.experiment), dataclasses.asdict(self))


def saved_comparisons(root: Path) -> list[Comparison]:
    """Return the comparisons whose runs are in a folder; a damaged one is left out and told."""
    comparisons: list[Comparison] = []
    for path in sorted(root.glob(_FILE.format(name="*"))) if root.is_dir() else []:
        try:
            with naming(path):
                values: dict[str, Any] = {
                    key: tuple(value) if isinstance(value, list) else value
                    for key, value in read_json(path).values.items()
                }
                comparisons.append(Comparison(**values))
        except DamagedError as error:
            warnings.warn(f"left out: {error}", stacklevel=2)
    return comparisons
