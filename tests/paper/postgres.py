"""A PostgreSQL server for a test: the one TORCHAPL_POSTGRES names, or one made by initdb."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def server() -> Iterator[str]:
    """Yield the URL of an empty database; skip where there is no server to be had."""
    pytest.importorskip("psycopg", reason="PostgreSQL: needs psycopg (torchapl[postgres])")
    given = os.environ.get("TORCHAPL_POSTGRES")
    if given:
        yield given
        return
    if shutil.which("initdb") is None or shutil.which("postgres") is None:
        pytest.skip("PostgreSQL: set TORCHAPL_POSTGRES to a URL, or put initdb, postgres on PATH")
    # Somebody else than root may not reach root's own folder for such files.
    with tempfile.TemporaryDirectory(dir="/tmp" if os.geteuid() == 0 else None) as name:
        folder = Path(name)
        become = _unprivileged(folder)
        data = folder / "data"
        create = ["initdb", "--auth=trust", "--username=apl", "--no-sync", "-D", str(data)]
        subprocess.run(create, check=True, capture_output=True, preexec_fn=become)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        start = ["postgres", "-D", str(data), "-k", str(folder), "-p", str(port)]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [*start, "-c", "listen_addresses=127.0.0.1"],
                stdout=log,
                stderr=log,
                preexec_fn=become,
            )
        try:
            _wait_for(process, f"postgresql://apl@127.0.0.1:{port}/postgres")
            yield f"postgresql+psycopg://apl@127.0.0.1:{port}/postgres"
        finally:
            # The fast way: the other one waits for connections that a failed test has left open.
            process.send_signal(signal.SIGINT)
            process.wait()


def _wait_for(process: subprocess.Popen[bytes], url: str) -> None:
    """Wait until the server answers, however busy the machine."""
    import psycopg

    while True:
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            assert process.poll() is None, "the server has ended"
            time.sleep(0.05)
        else:
            return


def _unprivileged(folder: Path) -> Callable[[], None] | None:
    """Return what makes a child somebody else than root, as whom PostgreSQL does not run."""
    if os.geteuid() != 0:
        return None
    user = pwd.getpwnam("nobody")
    os.chown(folder, user.pw_uid, user.pw_gid)

    def become() -> None:
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)

    return become
