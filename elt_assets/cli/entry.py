"""The commands of `elt`, their arguments, and how they end."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from elt_assets.cli.output import FAILED, INTERRUPTED, REFUSED, Output, complain
from elt_assets.errors import ConfigError, EltError, SystemFailure

_STREAM = "as in the catalog; with a namespace: NAMESPACE.STREAM"
Command = Callable[[argparse.Namespace, Output], int]

_ENDINGS = """\
exit codes:
  0    done
  1    it failed: the source, the lake, or this project; `check` found the source out of reach,
       `validate` or `status` a connection that cannot be loaded, or `discover --dry-run --exit-code`
       changes
  2    you must change something: the arguments, a file, a variable
  130  interrupted
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code.

    Raises:
        SystemExit: help was asked for.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    machine = "--json" in words
    try:
        arguments = _parser().parse_args(words)
        machine = arguments.json
        return _load(arguments.run)(arguments, Output(machine=machine, verbose=arguments.verbose))
    except EltError as error:
        complain(error, machine=machine)
        return REFUSED if isinstance(error, ConfigError) else FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - of Dagster, of storage …: it is told as everything else
        complain(SystemFailure(f"{type(error).__name__}: {error}"), machine=machine)
        return FAILED


def _load(name: str) -> Command:
    """A command's function. Help and mistakes in the arguments need none of what the commands import."""
    module, _, function = name.rpartition(".")
    found: Command = getattr(importlib.import_module(f"elt_assets.cli.{module}"), function)
    return found


class _Parser(argparse.ArgumentParser):
    """Tells of wrong arguments as everything else is told."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{self.prog}: {message}", guidance=self.format_usage().strip())


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="elt",
        description="The command line beside Dagster's own.",
        epilog=_ENDINGS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--json", action="store_true", help="answer with one JSON document, for machines"
    )
    parser.add_argument(
        "--verbose", action="store_true", help="show the details of connectors' logs, on stderr"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _looking(commands)
    _in_hand(commands)
    _creating(commands)
    return parser


def _looking(commands: Any) -> None:
    """What looks at a connection's source and tables."""
    text = "find out whether Dagster can load the connections; nothing is started"
    _connection(_add(commands, "validate", "validating.validate", text), optional=True)

    text = "check a connection, and try whether its source can be reached with this config"
    _connection(_add(commands, "check", "looking.check", text))

    one = _add(
        commands,
        "discover",
        "looking.discover",
        "ask the source for its streams; write catalog.json",
    )
    _connection(one)
    one.add_argument("--dry-run", action="store_true", help="only show what would change")
    one.add_argument(
        "--exit-code", action="store_true", help="with --dry-run: 1 if something would change"
    )

    text = "show a stream's first records; no run, no table and no state is touched"
    one = _add(commands, "preview", "previewing.preview", text)
    _connection(one)
    one.add_argument("stream", help=_STREAM)
    one.add_argument("-n", type=_count, default=20, help="how many; default 20", metavar="RECORDS")

    text = "show what each stream last moved, its table and its state"
    _connection(_add(commands, "status", "looking.status", text), optional=True)

    one = _add(
        commands, "replay", "looking.replay", "try the records in the streams' dead letters again"
    )
    _connection(one)
    one.add_argument("stream", nargs="*", help=f"{_STREAM}; default all")


def _in_hand(commands: Any) -> None:
    """A stream's state."""
    text = "show a stream's state, set it, go back to an earlier one, or start anew"
    inner = commands.add_parser("state", help=text, description=text)
    inner = inner.add_subparsers(required=True, metavar="ACTION")

    _asset(_add(inner, "show", "states.show", "where the next sync starts from"))

    one = _add(
        inner, "history", "states.history", "the states that were acknowledged, the newest first"
    )
    _asset(one)
    one.add_argument("-n", type=_count, default=20, help="how many; default 20", metavar="STATES")

    text = "make the next sync start from another state; the rows stay as they are"
    one = _add(inner, "set", "states.set_", text)
    _asset(one)
    one.add_argument("state", nargs="?", help="JSON: what the source says of the stream; or @FILE")
    one.add_argument(
        "--sequence", type=int, help="instead: go back to the state of this commit (see history)"
    )

    text = "make the next sync read from the beginning; the rows stay as they are"
    _asset(_add(inner, "reset", "states.reset", text))


def _creating(commands: Any) -> None:
    """New connections."""
    one = _add(
        commands, "new", "creating.new", "write a connection, with every stream that its source has"
    )
    one.add_argument("name", help="letters, digits, underscores")
    one.add_argument(
        "--source",
        required=True,
        help="a built-in connector, a package as NAME==VERSION or NAME (the newest version), or a command "
        'as "PROGRAM ARGUMENT …"',
    )
    one.add_argument("--config", help="of the source: JSON, or @FILE", metavar="JSON")

    _add(
        commands,
        "connectors",
        "creating.connectors",
        "the connectors that are built in, and other sources",
    )


def _add(commands: Any, name: str, run: str, text: str) -> argparse.ArgumentParser:
    """Args:
    run: the module in this package and the function in it, loaded when the command is run.
    """
    command: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    command.set_defaults(run=run)
    # Wherever it stands: what is not given here leaves alone what was given before.
    command.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="answer with JSON"
    )
    return command


def _connection(command: argparse.ArgumentParser, *, optional: bool = False) -> None:
    text = "its folder under the connections, or a path to it"
    if optional:
        command.add_argument("connection", nargs="?", help=f"{text}; default all")
    else:
        command.add_argument("connection", help=text)


def _asset(command: argparse.ArgumentParser) -> None:
    command.add_argument("asset", help="the stream's asset key, as shop/users")
    command.add_argument("--partition", help="of a stream with partitions: which", metavar="KEY")


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of one or more")
    return int(text)
