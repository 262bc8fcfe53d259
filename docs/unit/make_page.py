"""Put the modules of the interactive page into it: a hook of mkdocs.

Browsers load no modules from disk, and the site is to work from there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torchapl.paper.report.modules import inline_modules

_ELEMENT = '<script type="module" src="unit.js"></script>'


def with_modules(folder: Path) -> str:
    """Return the page of a folder with all modules inside."""
    page = (folder / "index.html").read_text(encoding="utf-8")
    modules = {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.js")}
    before, element, after = page.partition(_ELEMENT)
    if not element:
        raise ValueError(f"{folder / 'index.html'} has no {_ELEMENT}")
    return before + inline_modules(modules, 'import "unit";') + after


def on_post_build(config: Any) -> None:
    """Replace the page of the site that was built."""
    folder = Path(config.site_dir) / "unit"
    (folder / "index.html").write_text(with_modules(folder), encoding="utf-8")
    for path in folder.glob("*.js"):
        path.unlink()
