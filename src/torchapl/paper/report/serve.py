"""The report as a local page that follows runs while they train."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock

from torchapl.paper.report.html import render
from torchapl.paper.report.payload import build_payload
from torchapl.runs.records import Json

_WATCHED = ("config.json", "metrics.jsonl", "result.json", "curves.safetensors")


class LiveReport:
    """The payload of a folder of runs, built again when a file of a run has changed.

    Args:
        source: The folder.
    """

    def __init__(self, source: Path) -> None:
        self.source = source
        self._lock = Lock()
        self._stamp = ""
        self._payload: Mapping[str, Json] = {}
        self.refresh()

    def refresh(self) -> tuple[str, Mapping[str, Json]]:
        """Return the state of the files as a short text, and the payload for it."""
        with self._lock:
            stamp = self._fingerprint()
            if stamp != self._stamp:
                self._payload = build_payload(self.source)
                self._stamp = stamp
            return self._stamp, self._payload

    def _fingerprint(self) -> str:
        state = []
        for name in _WATCHED:
            for path in sorted(self.source.glob(f"**/{name}")):
                status = path.stat()
                state.append(f"{path}:{status.st_mtime_ns}:{status.st_size}")
        return hashlib.sha256("\n".join(state).encode()).hexdigest()[:16]


def make_server(source: Path, port: int) -> ThreadingHTTPServer:
    """Return a server of the report on this machine's own address, not started yet.

    Args:
        source: The folder of runs.
        port: 0 takes a free one; ``server.server_port`` says which.
    """
    report = LiveReport(source)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # A page of another site that points its name at this machine is refused.
            host = (self.headers.get("Host") or "").rsplit(":", 1)[0]
            if host not in ("127.0.0.1", "localhost"):
                self._answer(HTTPStatus.FORBIDDEN, "text/plain", b"this server is local\n")
                return
            path = self.path.partition("?")[0]
            if path not in ("/", "/payload.json"):
                self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"not here\n")
                return
            try:
                stamp, payload = report.refresh()
            except (OSError, ValueError) as error:
                self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", f"{error}\n".encode())
                return
            if path == "/":
                self._answer(HTTPStatus.OK, "text/html", render(payload, live=True).encode())
            elif self.headers.get("If-None-Match") == f'"{stamp}"':
                self._answer(HTTPStatus.NOT_MODIFIED, "application/json", b"", stamp)
            else:
                content = json.dumps(dict(payload) | {"live": True}).encode()
                self._answer(HTTPStatus.OK, "application/json", content, stamp)

        def _answer(self, status: HTTPStatus, kind: str, body: bytes, stamp: str = "") -> None:
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-cache")
            if stamp:
                self.send_header("ETag", f'"{stamp}"')
            # A page that was closed meanwhile needs no answer, and the terminal no traceback.
            with suppress(ConnectionError):
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: a page that asks every other second would fill the terminal."""

    try:
        return ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except OSError as error:
        raise OSError(error.errno, f"cannot serve on port {port}: {error.strerror}") from error
