"""Output of the commands, their exit codes, and the options that they share.

First `Output`: tables and lines for people, or one JSON document for machines; then the arguments and
options.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem
from rich.console import Console
from rich.table import Table as Grid

from elt_assets.connection import list_places
from elt_assets.errors import EltError
from elt_assets.protocol.messages import printable

OK, FAILED, REFUSED, CHECKS_FAILED, INTERRUPTED = 0, 1, 2, 3, 130
"""Exit codes; docs/cli.md describes them."""

_WARNINGS = ("WARN", "ERROR", "FATAL")
_DETAILS = ("DEBUG", "TRACE")

_WIDTH = 180
"""Width in characters of an output that is not a terminal."""

Document = dict[str, Any]
"""A JSON object in the answer of a command."""


class Output:
    """Output of a command. Each command prints its answer for people and for machines; only one is shown.

    Args:
        machine: whether the answer is JSON, for machines.
        verbose: whether people also get the details of connectors' logs.
    """

    def __init__(self, *, machine: bool, verbose: bool = False):
        self._machine = machine
        self._verbose = verbose
        self._console = _console()
        self._warnings: list[str] = []

    @property
    def shows_progress(self) -> bool:
        """Return whether progress bars are shown: not with JSON, and not with the details of logs."""
        return not (self._machine or self._verbose)

    @property
    def asks(self) -> bool:
        """Return whether somebody can answer a question: at a terminal, and not for machines."""
        return not self._machine and sys.stdin.isatty()

    @property
    def is_machine(self) -> bool:
        """Return whether the answer is JSON, for machines."""
        return self._machine

    @property
    def is_verbose(self) -> bool:
        """Return whether the details of connectors' logs are shown."""
        return self._verbose

    @property
    def width(self) -> int:
        """Width in characters."""
        return self._console.width

    def line(self, text: str) -> None:
        """Print a line for people."""
        if not self._machine:
            self._console.print(printable(text), soft_wrap=True)

    def raw(self, text: str) -> None:
        """Print a text as it is, for people and their programs: one that this project wrote, such as YAML."""
        if not self._machine:
            sys.stdout.write(text)

    def log(self, level: str, text: str) -> None:
        """Show a connector's log line: warnings and errors as `warn`, others for people only, on stderr."""
        if level in _WARNINGS:
            self.warn(text)
        elif not self._machine and (self._verbose or level not in _DETAILS):
            _console(stderr=True).print(printable(f"{level.lower()}: {text}"), soft_wrap=True)

    def verdict(self, word: str, text: str, *, good: bool) -> None:
        """Print a line for people that begins with the result as a coloured word."""
        if not self._machine:
            self._console.print(f"{word} ", end="", style=f"bold {'green' if good else 'red'}")
            self.line(text)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Print a table for people. Integers are aligned right. Without column names there is no header."""
        if self._machine:
            return
        lines, grid = list(rows), Grid(show_header=any(columns))
        for position, name in enumerate(columns):
            values = [line[position] for line in lines]
            numeric = bool(values) and all(isinstance(value, int) for value in values)
            grid.add_column(
                cell_text(name), justify="right" if numeric else "left", overflow="fold"
            )
        for line in lines:
            grid.add_row(*(cell_text(value) for value in line))
        self._console.print(grid)

    def warn(self, text: str) -> None:
        """Show a warning: for people on stderr, for machines in the answer."""
        self._warnings.append(text)
        if not self._machine:
            _console(stderr=True).print(f"warning: {printable(text)}", soft_wrap=True)

    def note(self, text: str) -> None:
        """Print the next step of a command on stderr, for people."""
        if not self._machine:
            _console(stderr=True).print(printable(text), soft_wrap=True)

    def announce_installation(self, package: str | None) -> None:
        """Print the package that has to be installed first, if there is one."""
        if package is not None:
            self.note(f"installing {package}; this is done once and may take some minutes")

    def document(self, answer: Document) -> None:
        """Print the whole answer for machines, with the warnings so far. It is ASCII: every pipe takes it."""
        if self._machine:
            document = {**answer, "warnings": self._warnings}
            sys.stdout.write(f"{json.dumps(document, indent=2, default=str)}\n")


def print_error(error: EltError, *, machine: bool) -> None:
    """Print an error on stderr: its failure type, what happened, and what to do next."""
    if machine:
        document = {
            "failure_type": error.failure_type,
            "message": error.message,
            "guidance": error.guidance,
            "detail": error.detail,
        }
        sys.stderr.write(f"{json.dumps({'error': document}, indent=2)}\n")
        return
    console = _console(stderr=True)
    console.print(f"{error.failure_type}: ", end="", style="bold red")
    console.print(printable(str(error)), soft_wrap=True)


def cell_text(value: object) -> str:
    """Return the text of a table cell. Characters that control a terminal are escaped."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else str(value)
    return printable(text, keep="")


def cut(text: str | None, width: int) -> str | None:
    """Return a text, shortened to a number of characters."""
    return text if text is None or len(text) <= width else f"{text[: width - 1]}…"


def mask_record(value: Any, mask: Callable[[str], str]) -> Any:
    """Return a JSON value with its secrets masked, in names and numbers too."""
    if isinstance(value, dict):
        return {mask(name): mask_record(inner, mask) for name, inner in value.items()}
    if isinstance(value, list):
        return [mask_record(inner, mask) for inner in value]
    if isinstance(value, str):
        return mask(value)
    hidden = mask(json.dumps(value, default=str))
    return value if hidden == json.dumps(value, default=str) else hidden


def _console(*, stderr: bool = False) -> Console:
    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _WIDTH
    return console


Function = Callable[..., Any]


def output_options(function: Function) -> Function:
    """Add `--json` and `--verbose`, which may stand before or after the name of the sub-command."""
    machine = click.option("--json", "machine", is_flag=True, help="Print one JSON document.")
    verbose = click.option(
        "--verbose", is_flag=True, help="Show the details of connectors' logs, on stderr."
    )
    return machine(verbose(function))


def subcommand(name: str, *examples: str, group: click.Group | None = None) -> Callable[..., Any]:
    """Return a decorator that makes a sub-command of a function. The function gets an `Output` and the values
    of its options, and returns the exit code.

    Args:
        name: name of the sub-command.
        examples: command lines that the help shows.
        group: group that the sub-command belongs to, if it is not `elt` itself.
    """
    epilog = "\n".join(["\b", "Examples:", *(f"  {line}" for line in examples)])
    make = (group.command if group else click.command)(name, epilog=epilog if examples else None)

    def decorate(function: Callable[..., int]) -> click.Command:
        @click.pass_context
        @functools.wraps(function)
        def run(context: click.Context, /, machine: bool, verbose: bool, **values: Any) -> int:
            outer_machine, outer_verbose = context.obj
            out = Output(machine=machine or outer_machine, verbose=verbose or outer_verbose)
            return function(out, **values)

        command: click.Command = make(output_options(run))
        return command

    return decorate


def connection_argument(*, required: bool = True) -> Callable[[Function], Function]:
    """Add the argument CONNECTION: the name of the connection, or the path of its folder."""
    return click.argument("connection", required=required, shell_complete=complete_connection)


def asset_arguments(function: Function) -> Function:
    """Add the argument ASSET, the asset key of a stream, and the option `--partition`."""
    asset = click.argument("asset", metavar="ASSET")
    return asset(partition_option("Partition key, for a stream with partitions.")(function))


def partition_option(text: str) -> Callable[[Function], Function]:
    """Add the option `--partition`."""
    return click.option("--partition", metavar="KEY", help=text)


def count_option(items: str) -> Callable[[Function], Function]:
    """Add the option `-n`, the number of items to show."""
    return click.option(
        "-n",
        "count",
        type=click.IntRange(min=1),
        default=20,
        show_default=True,
        metavar=items.upper(),
        help=f"Number of {items} to show.",
    )


def complete_connection(
    _: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the names of connections that begin with a text."""
    names = [place.name for place in list_places()]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]
