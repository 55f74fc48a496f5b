"""Live progress bars of `elt sync`, on stderr if it is a terminal."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from elt_assets.pipeline.connection_read import ConnectionRead
from elt_assets.pipeline.progress import Phase, repeat_in_thread
from elt_assets.protocol.messages import printable

_INTERVAL = 0.25
"""Seconds between two updates of a bar."""


class LiveProgress:
    """One bar for each read: its phase, rows, rate, percentage and time left.

    The bars are written to a copy of stderr. While they are shown, other output to stderr does not reach the
    terminal; Dagster stores it with the run.

    Args:
        is_enabled: whether bars are shown if stderr is a terminal.
    """

    def __init__(self, *, is_enabled: bool):
        self._file = os.fdopen(os.dup(2), "w")
        self._console = Console(file=self._file, highlight=False, markup=False)
        self.is_shown = is_enabled and self._console.is_terminal
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            TextColumn("{task.fields[phase]}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[rows]}", markup=False),
            TimeRemainingColumn(),
            console=self._console,
            redirect_stdout=False,
            redirect_stderr=False,
            disable=not self.is_shown,
        )

    def __enter__(self) -> LiveProgress:
        if self.is_shown:
            _redirect_stderr(os.devnull)
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()
        os.dup2(self._file.fileno(), 2)
        self._file.close()

    def line(self, text: str) -> None:
        """Print a line above the bars."""
        self._console.print(printable(text), soft_wrap=True)

    @contextlib.contextmanager
    def watch(self, read: ConnectionRead) -> Iterator[None]:
        """Show the bar of a read while the block runs."""
        if not self.is_shown:
            yield
            return
        task = self._bars.add_task(_name(read), total=None, phase="", rows="")
        bar = _Bar(self._bars, task, read)
        try:
            with repeat_in_thread(bar.update, _INTERVAL):
                yield
        finally:
            bar.update()
            self._bars.update(task, phase="done")
            self._bars.stop_task(task)


class _Bar:
    """The bar of one read. Its rate is that of the reading phase, and stays when this phase has ended."""

    def __init__(self, bars: Progress, task: TaskID, read: ConnectionRead):
        self._bars = bars
        self._task = task
        self._read = read
        self._started = self._ended = time.monotonic()

    def update(self) -> None:
        progress = self._read.current_progress()
        if progress.phase is Phase.READING:
            self._ended = time.monotonic()
        rate = progress.read / max(self._ended - self._started, _INTERVAL)
        self._bars.update(
            self._task,
            total=progress.estimate,
            completed=progress.read,
            phase=progress.phase.value,
            rows=f"{progress.read:,} rows, {rate:,.0f}/s, {progress.committed:,} committed",
        )


def _redirect_stderr(path: str) -> None:
    sys.stderr.flush()
    target = os.open(path, os.O_WRONLY)
    os.dup2(target, 2)
    os.close(target)


def _name(read: ConnectionRead) -> str:
    names = [str(stream) for stream in read.streams]
    text = names[0] if len(names) == 1 else f"{read.connection.name} ({len(names)} streams)"
    return printable(text if read.partition is None else f"{text} {read.partition}", keep="")
