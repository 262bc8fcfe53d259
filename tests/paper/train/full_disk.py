"""Run as a program: see a run through a disk that is really full. FOLDER, on a small file system.

Fills the folder's file system while the toy trains, looks at what is left, and makes room.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from toy import TOY, StopAt

from torchapl.cli import main
from torchapl.paper.train import InterruptedRunError, checkpoint, train
from torchapl.runs.atomic import WriteError


def fill(path: Path) -> None:
    """Write until there is no room."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 10, 1):
            try:
                while file.write(b"\0" * size):
                    pass
            except OSError:
                continue


def scenario(folder: Path) -> dict[str, object]:
    run, filler = folder / "run", folder / "filler"
    with contextlib.suppress(InterruptedRunError):
        train(TOY, 0, run, device="cpu", reporter=StopAt(15))
    kept = {path.name for path in run.glob("last-*")}
    fill(filler)
    said: list[str] = []
    try:
        train(TOY, 0, run, device="cpu")
    except WriteError as error:
        said.append(str(error))
    loaded = checkpoint.load(run, "last")
    # A new run cannot even begin, and says so with an exit code.
    code = main(["train", "atlas-dnn-apl", "--scale", "smoke", "--folder", str(folder / "new")])
    facts = {
        "said": said,
        "kept": kept <= {path.name for path in run.glob("last-*")},
        "step": loaded and loaded[1]["position"]["step"],
        "partials": [path.name for path in run.glob(".*")],
        "code": code,
    }
    filler.unlink()
    facts["status"] = train(TOY, 0, run, device="cpu").status
    return facts


if __name__ == "__main__":
    root = Path(sys.argv[1])
    result = scenario(root)
    # The file system ends with this process: what is to be compared goes elsewhere.
    for source in (root / "run").iterdir():
        (Path(sys.argv[2]) / source.name).write_bytes(source.read_bytes())
    sys.stdout.write(json.dumps(result))
