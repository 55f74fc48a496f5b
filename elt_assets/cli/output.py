"""How commands speak: tables and lines for people, or one JSON document for machines."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table as Grid

from elt_assets.errors import EltError
from elt_assets.protocol.airbyte.log_text import printable

OK, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130
"""Exit codes; docs/cli.md says what each means."""

_WARNINGS = ("WARN", "ERROR", "FATAL")
_DETAILS = ("DEBUG", "TRACE")

_WIDE = 180
"""Columns, where the output is no terminal and so has no width of its own."""

Document = dict[str, Any]
"""What a command answers, as JSON."""


class Output:
    """Where a command's answer goes. What is for people is not shown to machines, and the other way
    around, so that a command says both.

    Args:
        machine: whether it is JSON that is wanted.
        verbose: whether people want the details of connectors' logs, too.
    """

    def __init__(self, *, machine: bool, verbose: bool = False):
        self._machine = machine
        self._verbose = verbose
        self._console = _console()
        self._warnings: list[str] = []

    @property
    def shows_progress(self) -> bool:
        """Whether progress bars fit: not where the answer is JSON, nor between the lines of logs."""
        return not (self._machine or self._verbose)

    @property
    def width(self) -> int:
        """Columns."""
        return self._console.width

    def line(self, text: str) -> None:
        """Something for people."""
        if not self._machine:
            self._console.print(printable(text), soft_wrap=True)

    def hear(self, level: str, text: str) -> None:
        """A line of a connector's log: warnings and errors as `warn`; others for people alone, on stderr."""
        if level in _WARNINGS:
            self.warn(text)
        elif not self._machine and (self._verbose or level not in _DETAILS):
            _console(stderr=True).print(printable(f"{level.lower()}: {text}"), soft_wrap=True)

    def verdict(self, word: str, text: str, *, good: bool) -> None:
        """A line for people that begins with a word of how it went."""
        if not self._machine:
            self._console.print(f"{word} ", end="", style=f"bold {'green' if good else 'red'}")
            self.line(text)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Rows for people; a column of numbers stands to the right. No header where no column has a name."""
        if self._machine:
            return
        lines, grid = list(rows), Grid(show_header=any(columns))
        for position, name in enumerate(columns):
            values = [line[position] for line in lines]
            numeric = bool(values) and all(isinstance(value, int) for value in values)
            grid.add_column(shown(name), justify="right" if numeric else "left", overflow="fold")
        for line in lines:
            grid.add_row(*(shown(value) for value in line))
        self._console.print(grid)

    def warn(self, text: str) -> None:
        """For people a line on stderr, for machines part of the answer."""
        self._warnings.append(text)
        if not self._machine:
            _console(stderr=True).print(f"warning: {printable(text)}", soft_wrap=True)

    def note(self, text: str) -> None:
        """What a command is about to do, for people, on stderr."""
        if not self._machine:
            _console(stderr=True).print(text, soft_wrap=True)

    def announce_installation(self, package: str | None) -> None:
        """Say that a package has to be installed first, if one has."""
        if package is not None:
            self.note(f"installing {package}; this is done once and may take some minutes")

    def document(self, answer: Document) -> None:
        """The whole answer, for machines, with the warnings so far. ASCII, so that every pipe takes it."""
        if self._machine:
            told = {**answer, "warnings": self._warnings}
            sys.stdout.write(f"{json.dumps(told, indent=2, default=str)}\n")


def complain(error: EltError, *, machine: bool) -> None:
    """An error on stderr: who must act, what is wrong, what to do."""
    if machine:
        told = {
            "failure_type": error.failure_type,
            "message": error.message,
            "guidance": error.guidance,
            "detail": error.detail,
        }
        sys.stderr.write(f"{json.dumps({'error': told}, indent=2)}\n")
        return
    console = _console(stderr=True)
    console.print(f"{error.failure_type}: ", end="", style="bold red")
    console.print(printable(str(error)), soft_wrap=True)


def shown(value: object) -> str:
    """A value in a table's cell: nothing in it moves the cursor or changes a colour."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else str(value)
    return printable(text, keep="")


def cut(text: str | None, width: int) -> str | None:
    """A text's beginning."""
    return text if text is None or len(text) <= width else f"{text[: width - 1]}…"


def masked(value: Any, mask: Callable[[str], str]) -> Any:
    """A JSON value without what a mask hides, in names and numbers too."""
    if isinstance(value, dict):
        return {mask(name): masked(inner, mask) for name, inner in value.items()}
    if isinstance(value, list):
        return [masked(inner, mask) for inner in value]
    if isinstance(value, str):
        return mask(value)
    hidden = mask(json.dumps(value, default=str))
    return value if hidden == json.dumps(value, default=str) else hidden


def _console(*, stderr: bool = False) -> Console:
    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _WIDE
    return console
