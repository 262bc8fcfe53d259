from __future__ import annotations

import hashlib
import http.server
import threading
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pytest
from tiny import Server, Tiny, pickled, tar_bytes

from torchapl.paper.data.catalogue import DataFile, Download, ImageForm, ImageSet


@pytest.fixture
def tiny() -> Tiny:
    random = np.random.default_rng(5)
    pixels = random.integers(0, 256, (50, 3072), dtype=np.uint8)
    labels = random.integers(0, 4, 50).astype(np.uint8)
    rows = {"one": slice(0, 20), "two": slice(20, 40), "test": slice(40, 50)}
    records = np.concatenate([labels[:, None], pixels], axis=1)
    members = {
        "binary": {f"{name}.bin": records[part].tobytes() for name, part in rows.items()},
        "python": {
            name: pickled(pixels[part], labels[part].tolist()) for name, part in rows.items()
        },
    }
    forms, archives = [], {}
    for kind, algorithm in (("binary", "sha256"), ("python", "md5")):
        folder = f"tiny-{kind}"
        archives[kind] = tar_bytes(
            {f"{folder}/{name}": content for name, content in members[kind].items()}
        )
        files = [
            DataFile(name, len(content), hashlib.new(algorithm, content).hexdigest())
            for name, content in members[kind].items()
        ]
        checksum = hashlib.md5(archives[kind]).hexdigest()
        archive = Download(
            "http://127.0.0.1:9/none", f"{folder}.tar.gz", len(archives[kind]), checksum
        )
        forms.append(ImageForm(kind, archive, folder, tuple(files[:2]), tuple(files[2:])))
    images = ImageSet(4, 1, "labels", tuple(forms))
    return Tiny(images, pixels.reshape(-1, 3, 32, 32), labels.astype(np.int64), members, archives)


@pytest.fixture
def server() -> Iterator[Server]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            pass

        def do_GET(self) -> None:
            asked = self.headers.get("Range")
            state.asked.append(asked)
            if state.status is not None:
                self.send_error(state.status)
                return
            first = int(asked[6:-1]) if asked and state.ranges else 0
            if first >= len(state.content) > 0:
                self.send_error(416)
                return
            body = state.content[first:]
            self.send_response(206 if asked and state.ranges else 200)
            length = str(len(body)) if state.length is None else state.length
            if length:
                self.send_header("Content-Length", length)
            if asked and state.ranges:
                last = len(state.content) - 1
                self.send_header("Content-Range", f"bytes {first}-{last}/{len(state.content)}")
            self.end_headers()
            cut = state.cuts.pop(0) if state.cuts else None
            with suppress(ConnectionError):  # of a client that has had enough
                self.wfile.write(body if cut is None else body[:cut])

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        state = Server(f"http://127.0.0.1:{running.server_port}/file")
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield state
        running.shutdown()
        thread.join()
