"""Run as a program: break runs in every way and see that each ends as if nothing had happened.

    python tests/long/faults.py --kills 1000 --damages 500

Kills processes at random moments; damages every kind of file that a run writes, and repeats the
command. Each case ends identical to the bit, or is refused or told in words. Prints a table of
counts by kind and outcome; anything silent is an error, exit code 1.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import socket
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "paper" / "train"))

import toy

from torchapl.paper.report.payload import build_payload
from torchapl.paper.train import InterruptedRunError, train
from torchapl.runs.atomic import WriteError
from torchapl.runs.folder import CONFIG, CURVES, INPUTS, METRICS, RESULT, SCORES
from torchapl.runs.records import DamagedError

# What the program may answer to a damaged file; anything else would be a traceback.
REFUSALS = (DamagedError, WriteError, ValueError, OSError)
EPOCHS = 40
Table = Counter[tuple[str, str]]


def fork(work: Callable[[], None], environment: dict[str, str] | None = None) -> int:
    """Do work in a child process; torch is imported already."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.environ.update(environment or {})
        # Warnings of lives that begin after a kill are not the matter here.
        warnings.simplefilter("ignore")
        work()
        code = 0
    finally:
        os._exit(code)


def free_port() -> str:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return str(server.getsockname()[1])


def live(folder: Path, processes: int, term: float, victim: int | None) -> bool:
    """Train until the end or until a kill at ``term``; say whether it got to the end.

    One of several processes is killed, or all of them at once where ``victim`` is None.
    """
    experiment = replace(toy.TOY, epochs=EPOCHS)

    def work() -> None:
        train(experiment, 0, folder, device="cpu", checkpoint_seconds=0.0)

    port = free_port()
    children = [
        fork(
            work,
            {}
            if processes == 1
            else {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(processes),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
            },
        )
        for rank in range(processes)
    ]
    start = time.monotonic()
    codes: dict[int, int] = {}
    while len(codes) < processes:
        for child in children:
            if child not in codes and (status := os.waitpid(child, os.WNOHANG)) != (0, 0):
                codes[child] = status[1]
        failed = any(codes.values())
        if time.monotonic() - start > term or failed:
            chosen = children if victim is None or failed else [children[victim]]
            for child in chosen:
                if child not in codes:
                    os.kill(child, signal.SIGKILL)
            term = float("inf") if not failed else term
            # As torchrun does: without one process the others have nothing to do.
            if victim is not None:
                time.sleep(0.01)
        time.sleep(0.001)
    return not any(codes.values())


def kill_runs(root: Path, kills: int, processes: int, chance: random.Random, table: Table) -> None:
    kind = f"kill, {processes} process{'es' if processes > 1 else ''}"
    whole = root / f"whole-{processes}"
    if not live(whole, processes, float("inf"), None):
        raise RuntimeError("a run that nobody kills did not end")
    done = run = 0
    while done < kills:
        folder = root / f"killed-{processes}-{run}"
        run += 1
        lives = 0
        # A few lives of any length, then one to the end.
        wanted = min(25, kills - done)
        while True:
            term = chance.uniform(0.0, 1.5) if lives < wanted else float("inf")
            victim = chance.randrange(processes) if chance.random() < 0.5 else None
            if live(folder, processes, term, victim):
                break
            lives += 1
        done += lives
        table[kind, outcome_of(whole, folder, [])] += max(1, lives)
        shutil.rmtree(folder)
        print(f"{kind}: {done} of {kills}", file=sys.stderr)


def flip(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    if content:
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def cut(path: Path, chance: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: chance.randrange(len(content) + 1)])


def scramble(path: Path, chance: random.Random) -> None:
    path.write_bytes(chance.randbytes(chance.randrange(2000)))


def remove(path: Path, chance: random.Random) -> None:
    path.unlink()


def become_folder(path: Path, chance: random.Random) -> None:
    path.unlink()
    path.mkdir()


DAMAGES = {
    "flipped bit": flip,
    "cut": cut,
    "other bytes": scramble,
    "removed": remove,
    "folder": become_folder,
}


def kind_of(path: Path) -> str:
    return path.name.split("-")[0] if path.name.startswith(("last-", "best-")) else path.name


def damage_runs(root: Path, count: int, chance: random.Random, table: Table) -> None:
    """Damage a file of an unfinished run, repeat the command; and of a finished one, report."""
    whole, begun = root / "whole", root / "begun"
    train(toy.TOY, 0, whole, device="cpu")
    with contextlib.suppress(InterruptedRunError):
        train(toy.TOY, 0, begun, device="cpu", reporter=toy.StopAt(25))
    expected = comparable(build_payload(whole))
    for number in range(count):
        damage = chance.choice(list(DAMAGES))
        for source, state in ((begun, "unfinished"), (whole, "finished")):
            folder = shutil.copytree(source, root / "run" / "case")
            path = chance.choice(sorted(path for path in folder.iterdir() if path.is_file()))
            kind = f"{state}: {kind_of(path)}"
            before = path.read_bytes()
            DAMAGES[damage](path, chance)
            if path.is_file() and path.read_bytes() == before:
                table[kind, "not damaged"] += 1
            elif state == "unfinished":
                table[kind, trained_again(whole, folder)] += 1
            else:
                table[kind, reported(folder, expected)] += 1
            shutil.rmtree(root / "run")
        if number % 20 == 19:
            print(f"damages: {number + 1} of {count}", file=sys.stderr)


def trained_again(whole: Path, folder: Path) -> str:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            train(toy.TOY, 0, folder, device="cpu")
        except REFUSALS as error:
            return "refused" if str(folder) in str(error) else f"UNCLEAR: {error!r}"
        except Exception as error:
            return f"TRACEBACK: {type(error).__name__}"
    return outcome_of(whole, folder, [str(warning.message) for warning in told])


def outcome_of(whole: Path, folder: Path, told: list[str]) -> str:
    """Compare two finished runs to the bit."""
    try:
        toy.assert_identical(whole, folder)
    except AssertionError:
        if any("curves" in text and "lost" in text for text in told):
            return "goes on, told"
        return "SILENT DIFFERENCE"
    return "identical, told" if told else "identical"


def comparable(payload: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in payload.items() if key not in ("made", "title")}


def reported(folder: Path, expected: dict[str, object]) -> str:
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        try:
            shown = comparable(build_payload(folder))
        except REFUSALS as error:
            return "refused" if str(folder) in str(error) else f"UNCLEAR: {error!r}"
        except Exception as error:
            return f"TRACEBACK: {type(error).__name__}"
    if shown == expected:
        return "identical"
    # Without a file the page has one section less, says that the run is not finished, or (without
    # config.json) does not know the data set's name.
    missing = any(not (folder / name).exists() for name in SHOWN)
    return "shown without it" if missing else "SILENT DIFFERENCE"


SHOWN = (CONFIG, RESULT, METRICS, CURVES, INPUTS, SCORES)


def print_table(table: Table) -> None:
    outcomes = sorted({outcome for _, outcome in table})
    kinds = sorted({kind for kind, _ in table})
    print("| kind | " + " | ".join(outcomes) + " |")
    print("|---" * (len(outcomes) + 1) + "|")
    for kind in kinds:
        counts = " | ".join(str(table[kind, outcome] or "") for outcome in outcomes)
        print(f"| {kind} | {counts} |")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="three quarters in single runs")
    parser.add_argument("--damages", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    chance = random.Random(args.seed)
    table: Table = Counter()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        # Before anything has started a thread: children are forks.
        kill_runs(root, args.kills - args.kills // 4, 1, chance, table)
        kill_runs(root, args.kills // 4, 2, chance, table)
        damage_runs(root, args.damages, chance, table)
    print_table(table)
    return 1 if any(outcome.split(":")[0].isupper() for _, outcome in table) else 0


if __name__ == "__main__":
    sys.exit(main())
