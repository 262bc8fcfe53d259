"""The payload as one HTML file that needs nothing else."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from torchapl.paper.atomic import write_atomic
from torchapl.paper.config import Json
from torchapl.paper.report.payload import build_payload

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
        "style": _asset("page.css"),
        "plotly": _asset("plotly-cartesian.min.js"),
        "script": _asset("page.js"),
        "charts": _asset("charts.js"),
        "explorer": _asset("explorer.js"),
        "payload": data,
    }
    # One pass: what is put in is not searched for places again.
    return _PLACE.sub(lambda place: content[place[1]], _asset("page.html"))


def write_report(source: Path, output: Path) -> dict[str, Json]:
    """Write the report about the runs below ``source`` and return its payload."""
    payload = build_payload(source)
    output.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(output, render(payload).encode())
    return payload


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
