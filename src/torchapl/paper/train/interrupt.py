"""Ctrl-C and SIGTERM as requests: the step is finished and the state saved before the run stops."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class InterruptedRunError(RuntimeError):
    """A signal asked the run to stop; it did so after a step, and saved."""

    def __init__(self, signum: int) -> None:
        super().__init__(
            f"stopped by {signal.Signals(signum).name}; the same command resumes the run"
        )
        self.signum = signum


@contextmanager
def requests() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM in a list; a second one of the same kind acts as it always does.

    Outside the main thread, where Python allows no handlers, the list stays empty.
    """
    asked: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def note(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, note)
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
