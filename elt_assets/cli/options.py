"""Arguments and options that several sub-commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem

from elt_assets.cli.output import Output
from elt_assets.connection import list_places

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
