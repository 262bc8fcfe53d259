"""The payload as one HTML file that needs nothing else."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from torchapl.paper.report.modules import inline_modules
from torchapl.paper.report.payload import SECTIONS, build_payload
from torchapl.runs.atomic import write_atomic
from torchapl.runs.records import Json

_PAGE = resources.files(__package__) / "page"
_PLACE = re.compile(r"\{\{(\w+)\}\}")


def render(payload: Mapping[str, Json], *, live: bool = False) -> str:
    """Return the page.

    Args:
        payload: From :func:`~torchapl.paper.report.payload.build_payload`.
        live: Whether the page asks its server for news.
    """
    # "<" is the only character that can end a script element from within.
    data = json.dumps(dict(payload) | {"live": live}).replace("<", "\\u003c")
    content = {
        "title": html.escape(str(payload["title"])),
        "style": _asset("style.css"),
        "plotly": _asset("plotly-cartesian.min.js"),
        "modules": _modules(),
        "payload": data,
    }
    # One pass: what is put in is not searched for places again.
    return _PLACE.sub(lambda name: content[name[1]], _asset("index.html"))


def write_report(source: Path, output: Path) -> dict[str, Json]:
    """Write the report about the runs below ``source`` and return its payload."""
    payload = build_payload(source)
    output.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(output, render(payload).encode())
    return payload


def _modules() -> str:
    """Return the page's scripts; each section is the one thing that its module exports."""
    files = [*_PAGE.iterdir(), *(_PAGE / "sections").iterdir()]
    modules = {
        file.name.removesuffix(".js"): file.read_text(encoding="utf-8")
        for file in files
        if file.name.endswith(".js") and not file.name.endswith(".min.js")
    }
    sections = ", ".join(SECTIONS)
    start = ["import { Page } from 'main';"]
    start += [f"import {name} from '{name}';" for name in SECTIONS]
    start += ["const data = JSON.parse(document.getElementById('payload').textContent);"]
    # For the browser's console.
    start += [f"window.report = new Page(data, {{ {sections} }});", "window.report.start();"]
    return inline_modules(modules, "\n".join(start))


def _asset(name: str) -> str:
    return (_PAGE / name).read_text(encoding="utf-8")
