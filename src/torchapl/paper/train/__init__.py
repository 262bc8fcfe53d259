"""One run: an experiment and a seed in, a result out; interrupted, it goes on where it was."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import torch

from torchapl.paper.config import Experiment, differences, to_dict
from torchapl.paper.runs import experiment_of
from torchapl.paper.train.distributed import World, from_first, joined
from torchapl.paper.train.interrupt import InterruptedRunError
from torchapl.paper.train.loop import Run
from torchapl.paper.train.network import Compile, check_compile
from torchapl.paper.train.progress import Reporter, Silent
from torchapl.paper.train.trainer import DivergedError, Trainer
from torchapl.runs.folder import (
    RunConfig,
    RunLockedError,
    RunResult,
    environment,
    locked,
    read_config,
    read_result,
    write_config,
)
from torchapl.runs.records import DamagedError
from torchapl.watch import same_random_state

__all__ = ["DivergedError", "InterruptedRunError", "RunLockedError", "RunResult", "train"]


def train(
    experiment: Experiment,
    seed: int,
    folder: Path,
    *,
    device: str = "auto",
    data_root: Path | None = None,
    overrides: Sequence[str] = (),
    compile: Compile = "none",
    checkpoint_seconds: float = 60.0,
    tensorboard: bool = False,
    reporter: Reporter | None = None,
) -> RunResult:
    """Train one network, or finish what an earlier call began in the same folder.

    Under torchrun all processes call this with the same arguments; the first one writes.

    Args:
        experiment: What to train, overrides applied.
        seed: Of the start, the order of the data and dropout.
        folder: The run folder, see docs/runs.md.
        device: ``"auto"`` takes CUDA where there is one.
        data_root: Folder with the data sets' files.
        overrides: The settings that were changed, for the record.
        compile: ``"default"`` compiles the network, ``"graphs"`` captures CUDA graphs too.
        checkpoint_seconds: Time between two checkpoints; every epoch ends with one too.
        tensorboard: Also write TensorBoard's files.
        reporter: Told about progress.

    Returns:
        The result; of status ``"failed"`` if the run diverged.

    Raises:
        RunLockedError: If a live process works in the folder.
        InterruptedRunError: After Ctrl-C or SIGTERM, once the state is saved.
        ValueError: If the folder holds a run of other settings.
        DamagedError: If a file that the run needs cannot be trusted and nothing can mend it.
    """
    folder = Path(folder)
    if not -(2**63) <= seed < 2**64:
        raise ValueError(f"seed must fit 64 bits, got {seed}")
    if not checkpoint_seconds >= 0:
        raise ValueError(f"checkpoint_seconds must be 0 or more, got {checkpoint_seconds}")
    with ExitStack() as stack:
        world, chosen = stack.enter_context(joined(device))
        check_compile(compile, chosen)
        stack.enter_context(same_random_state([chosen]))
        if chosen.type == "cuda":
            # A resumed run must repeat the convolutions of the first one to the bit.
            stack.enter_context(torch.backends.cudnn.flags(enabled=True, deterministic=True))
        # Before the lock, which a disk that is read-only would refuse.
        result = _finished(folder, experiment, seed, world)
        if result is None:
            if world.is_first:
                stack.enter_context(locked(folder))
            # Another process may have finished it meanwhile.
            result = _finished(folder, experiment, seed, world)
        if result is not None:
            return result
        trainer = Trainer(
            experiment, seed, device=chosen, data_root=data_root, world=world, compile=compile
        )
        # Not before: what cannot begin, for want of data or by a wrong setting, is no run.
        if world.is_first:
            _write_config(folder, experiment, seed, overrides, chosen, compile)
        run = Run(
            trainer,
            folder,
            tuple(overrides),
            checkpoint_seconds,
            (reporter or Silent()) if world.is_first else Silent(),
            tensorboard and world.is_first,
        )
        return run.complete()


def _finished(folder: Path, experiment: Experiment, seed: int, world: World) -> RunResult | None:
    """Return, in all processes, the result that the folder has already."""
    return from_first(_begin(folder, experiment, seed) if world.is_first else None, world)


def _begin(folder: Path, experiment: Experiment, seed: int) -> RunResult | None:
    """Return the result if there is one already; refuse a folder of another run."""
    stored = _stored_config(folder)
    if stored is not None:
        changed = differences(experiment_of(folder, stored), experiment)
        if stored.seed != seed:
            changed["seed"] = (stored.seed, seed)
        if changed:
            what = [f"{key}={old} (now {new})" for key, (old, new) in changed.items()]
            # Another experiment differs in everything: the first few say which it is.
            rest = f" and {len(what) - 3} other settings" if len(what) > 4 else ""
            raise ValueError(
                f"{folder} holds a run with {', '.join(what[: 3 if rest else 4])}{rest}: choose "
                "another folder or remove this one"
            )
    try:
        return read_result(folder)
    except DamagedError as error:
        if not list(folder.glob("last-*")):
            advice = "there is no checkpoint to make it again from, so remove it to train again"
            raise DamagedError(error.path, f"{error.reason}; {advice}") from error
        warnings.warn(f"{error}; it is made again from the last checkpoint", stacklevel=3)
        return None


def _stored_config(folder: Path) -> RunConfig | None:
    try:
        return read_config(folder)
    except DamagedError as error:
        advice = "if the run in this folder is the one you mean, remove the file"
        raise DamagedError(error.path, f"{error.reason}; {advice}") from error


def _write_config(
    folder: Path,
    experiment: Experiment,
    seed: int,
    overrides: Sequence[str],
    device: torch.device,
    compile: Compile,
) -> None:
    now = environment(device) | {"compile": compile}
    stored = read_config(folder)
    if stored is None:
        settings = to_dict(experiment)
        config = RunConfig(settings, experiment.scale, seed, tuple(overrides), now)
        write_config(folder, config)
        return
    # Runs begun before there was a choice were not compiled.
    before = {"compile": "none", **stored.environment}
    for key in ("versions", "device", "hardware", "threads", "compile"):
        if before.get(key) != now[key]:
            warnings.warn(
                f"{key} was {before.get(key)} when this run began and is {now[key]} now: "
                "the end will not be identical to the bit",
                stacklevel=3,
            )
