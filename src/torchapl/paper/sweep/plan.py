"""Which runs a cell needs, and which of them come next: a pure function of the results so far."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from torchapl.paper.config import assignments, override, override_all
from torchapl.paper.experiments import Cell, get, scale_named, scaled
from torchapl.paper.experiments.scales import multiplied_rates, rate_factors
from torchapl.paper.sweep.ensemble import averaged
from torchapl.paper.sweep.jobs import Job, Results, job_of
from torchapl.runs import RunResult


@dataclass(frozen=True)
class Choice:
    """One decision of the validation rows: the candidates, their scores, the winner."""

    candidates: tuple[str, ...]
    # Mean validation error in percent, or 1 - AUC; infinite where every run failed.
    scores: tuple[float, ...]

    @property
    def winner(self) -> str:
        """The candidate with the lowest score; the first of equal ones."""
        return self.candidates[self.scores.index(min(self.scores))]


@dataclass(frozen=True)
class Stage:
    """Candidates among which the validation rows decide, by runs of one experiment."""

    experiment: str
    candidates: tuple[str, ...]


@dataclass(frozen=True)
class Sweep:
    """The runs of some tables at one scale.

    Args:
        scale: ``"paper"``, ``"study"``, ``"lab"`` or ``"smoke"``.
        seeds: Runs of every cell; None for as many as the paper made, or more if there are.
        selection_seeds: Runs of every candidate while something is chosen; with 0 nothing is, and
            the experiments' own settings count.
        rates: Factors of the learning rate to choose from; None for those of the scale.
        overrides: Settings that are changed in all runs.

    Example:
        >>> from torchapl.paper.experiments import TABLES
        >>> sweep = Sweep("smoke", seeds=2)
        >>> [job.seed for job in sweep.next_jobs(TABLES["table3"].cells[0], {})]
        [0, 1]
    """

    scale: str
    seeds: int | None = None
    selection_seeds: int = 1
    rates: tuple[float, ...] | None = None
    overrides: tuple[str, ...] = ()

    def stages(self, cell: Cell) -> list[Stage]:
        """Return what the validation rows decide, one after the other.

        At scales that choose it the learning rate comes first, from the same grid for every row.
        """
        scale = scale_named(self.scale)
        stages = []
        decider = cell.rate_from or cell.experiment
        rates = self._rates(decider, cell)
        if self.selection_seeds and rates:
            stages.append(Stage(decider, rates))
        if self.selection_seeds and scale.chooses and cell.choices:
            stages.append(Stage(cell.experiment, cell.choices))
        return stages

    def _rates(self, decider: str, cell: Cell) -> tuple[str, ...]:
        experiment = get(decider)
        factors = rate_factors(experiment, self.scale) if self.rates is None else self.rates
        # Of the rate that the user has set, if there is one.
        common = (*cell.settings, *self.overrides)
        return multiplied_rates(override_all(scaled(experiment, self.scale), common), factors)

    def choices(self, cell: Cell, results: Results) -> tuple[list[Choice], list[Job]]:
        """Return the decisions made so far and the runs that the next one waits for."""
        made: list[Choice] = []
        for stage in self.stages(cell):
            jobs = {
                candidate: [
                    self._job(stage.experiment, cell, [*_winners(made), candidate], seed, True)
                    for seed in range(self.selection_seeds)
                ]
                for candidate in stage.candidates
            }
            missing = [job for group in jobs.values() for job in group if job not in results]
            if missing:
                return made, missing
            scores = tuple(_mean_score([results[job] for job in group]) for group in jobs.values())
            made.append(Choice(stage.candidates, scores))
        return made, []

    def _job(
        self, experiment: str, cell: Cell, overrides: Sequence[str], seed: int, selects: bool
    ) -> Job:
        # What changes nothing is left out, so that the run is found under its plain name.
        settings = scaled(get(experiment), self.scale)
        common = (*cell.settings, *self.overrides)
        # What was chosen stands in place of what it was chosen around.
        chosen = assignments(overrides)
        common = tuple(text for text in common if not assignments([text]).keys() & chosen.keys())
        effective = [text for text in common if override(settings, text) != settings]
        settings = override_all(settings, effective)
        effective += [text for text in overrides if override(settings, text) != settings]
        return Job(experiment, self.scale, seed, tuple(sorted(effective)), selects)

    def final_jobs(self, cell: Cell, made: Sequence[Choice]) -> list[Job]:
        """Return the runs that count, on all training rows, with what was chosen."""
        seeds = max(self.seeds or cell.seeds, cell.members)
        return [
            self._job(cell.experiment, cell, _winners(made), seed, cell.held_out)
            for seed in range(seeds)
        ]

    def next_jobs(self, cell: Cell, results: Results) -> list[Job]:
        """Return the runs to do now for a cell; none when it is complete."""
        made, missing = self.choices(cell, results)
        return missing or [job for job in self.final_jobs(cell, made) if job not in results]

    def final_runs(self, cell: Cell, results: Results) -> tuple[list[Choice], dict[int, RunResult]]:
        """Return what was chosen, and the runs that count which have a result, by seed, in order.

        What the validation rows have not decided yet is as the experiment has it. An ensemble
        counts as one run, of seed 0.
        """
        made, _ = self.choices(cell, results)
        first = self.final_jobs(cell, made)[0]
        if cell.kind == "ensemble":
            job = replace(first, members=cell.members)
            run = results.get(job) or averaged(self._members(cell, first, results))
            return made, {} if run is None else {0: run}
        # Not by counting: seeds may be large, such as dates.
        seeds = sorted({job.seed for job in results})
        if self.seeds is not None:
            seeds = [seed for seed in seeds if 0 <= seed < self.seeds]
        jobs = {seed: replace(first, seed=seed) for seed in seeds}
        return made, {seed: results[job] for seed, job in jobs.items() if job in results}

    def _members(self, cell: Cell, first: Job, results: Results) -> list[RunResult | None]:
        return [results.get(replace(first, seed=seed)) for seed in range(cell.members)]

    def ensembles(self, cells: Iterable[Cell], results: Results) -> dict[Job, RunResult]:
        """Return the ensembles of some cells, as they are stored."""
        made = {}
        for cell in cells:
            if cell.kind == "ensemble":
                for run in self.final_runs(cell, results)[1].values():
                    made[job_of(run)] = run
        return made


def _winners(made: Sequence[Choice]) -> list[str]:
    return [choice.winner for choice in made]


def _mean_score(runs: Sequence[RunResult]) -> float:
    """Return the mean validation error, or 1 - AUC; a failed run makes it infinite."""
    if any(run.status == "failed" for run in runs):
        return float("inf")
    values = [
        1 - run.metrics["valid_auc"] if "valid_auc" in run.metrics else run.metrics["valid_error"]
        for run in runs
    ]
    return sum(values) / len(values)
