"""The live progress bars of `elt sync`, on stderr, where that is a terminal."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
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

from elt_assets.pipeline.progress import Phase
from elt_assets.pipeline.progress import Progress as ReadProgress
from elt_assets.pipeline.read_plan import ReadPlan
from elt_assets.protocol.airbyte.log_text import printable

_EVERY = 0.25
"""Seconds between two looks at a read."""


class LiveProgress:
    """One bar for each read: its phase, rows, rate, percentage and time left.

    The bars are written to a copy of stderr. While they are shown, all other output to stderr is kept from
    the terminal; Dagster stores it with the run.

    Args:
        is_wanted: whether there are to be bars if stderr is a terminal.
    """

    def __init__(self, *, is_wanted: bool):
        self._file = os.fdopen(os.dup(2), "w")
        self._console = Console(file=self._file, highlight=False, markup=False)
        self.is_shown = is_wanted and self._console.is_terminal
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
    def watch(self, plan: ReadPlan, look: Callable[[], ReadProgress]) -> Iterator[None]:
        """Show a read while the block runs."""
        if not self.is_shown:
            yield
            return
        over = threading.Event()
        task = self._bars.add_task(_name(plan), total=None, phase="", rows="")
        row = _Row(self._bars, task, look)

        def follow() -> None:
            while not over.wait(_EVERY):
                row.update()

        thread = threading.Thread(target=follow, name="live-progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            row.update()
            self._bars.update(task, phase="done")
            self._bars.stop_task(task)


class _Row:
    """The bar of one read. Its rate is that of the reading, and stays when the reading has ended."""

    def __init__(self, bars: Progress, task: TaskID, look: Callable[[], ReadProgress]):
        self._bars = bars
        self._task = task
        self._look = look
        self._started = self._until = time.monotonic()

    def update(self) -> None:
        progress = self._look()
        if progress.phase is Phase.READING:
            self._until = time.monotonic()
        rate = progress.read / max(self._until - self._started, _EVERY)
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


def _name(plan: ReadPlan) -> str:
    names = [str(read.id) for read in plan.streams]
    text = names[0] if len(names) == 1 else f"{plan.connection.name} ({len(names)} streams)"
    partition = plan.streams[0].partition
    return printable(text if partition is None else f"{text} {partition}", keep="")
