"""The command line of the conformance kit: `python -m connectors.testing [OPTIONS] -- COMMAND …`."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from typing import Any

from connectors.testing.connector import Processes, Run
from connectors.testing.kit import RULES, Kit
from connectors.testing.options import KitOptions
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import load_config
from elt_assets.protocol.messages import printable

PASSED, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130
"""The exit codes: no finding; a finding, or a rule that could not be checked; invalid arguments; Ctrl-C."""

_EPILOG = """\
exit codes:
  0  the connector follows all rules that apply
  1  it violates a rule, or a rule could not be checked
  2  the arguments are not valid
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Check the connector that the arguments name, and print a report.

    Returns:
        The exit code.

    Raises:
        SystemExit: the arguments are not valid, or request help.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    split = words.index("--") if "--" in words else len(words)
    arguments = _parser().parse_args(words[:split])
    if arguments.list_rules:
        print("\n".join(f"{rule.name:<36}{rule.summary}" for rule in RULES.values()))
        return PASSED
    try:
        return _check(arguments, words[split + 1 :])
    except ConfigError as error:
        _print_error(error, machine=arguments.json)
        return REFUSED
    except KeyboardInterrupt:
        return INTERRUPTED


def _check(arguments: argparse.Namespace, command: Sequence[str]) -> int:
    if not command:
        raise ConfigError(
            "no command of a connector is given",
            guidance="write it after `--`, as in: -- python -m my_source",
        )
    options = KitOptions(
        tap=arguments.tap,
        bad_configs={f"of the file {path}": load_config(path) for path in arguments.bad_config},
        streams=arguments.stream,
        rules=arguments.rule,
        skip=arguments.skip,
        ignore=arguments.ignore,
        cuts=arguments.cuts,
        cursors=dict(arguments.cursor),
        secrets=arguments.secret,
        seconds=arguments.timeout,
        removal=arguments.removal,
    )
    config = {} if arguments.config is None else load_config(arguments.config)
    processes = Processes(on_run=_print_run) if arguments.verbose else Processes()
    report = Kit(command, config, options, processes).report()
    if arguments.json:
        print(json.dumps(report.document(), indent=2))
    else:
        print(printable("\n".join(report.lines())))
    return PASSED if report.passed else FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m connectors.testing",
        usage="%(prog)s [OPTIONS] -- COMMAND …",
        description="Check whether a connector follows the rules of its protocol.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    flag, many = {"action": "store_true"}, {"action": "append", "default": []}
    options: dict[str, dict[str, Any]] = {
        "tap": {**flag, "help": "a Singer tap; without it, an Airbyte source"},
        "config": {"metavar": "FILE", "help": "the config; default: empty"},
        "bad-config": {**many, "metavar": "FILE", "help": "a config that `check` must refuse"},
        "stream": {**many, "metavar": "NAME", "help": "a stream to read; default: all"},
        "cursor": {
            **many,
            "type": _pair,
            "metavar": "STREAM=FIELD",
            "help": "the cursor field of a stream whose cursor the user chooses",
        },
        "secret": {
            **many,
            "metavar": "FIELD",
            "help": "a secret field of the config that the specification does not mark",
        },
        "rule": {**many, "metavar": "NAME", "help": "a rule to check; default: all"},
        "skip": {**many, "metavar": "NAME", "help": "a rule to leave out"},
        "ignore": {**many, "metavar": "FIELD", "help": "a field that differs in each read"},
        "cuts": {
            "type": _positive,
            "metavar": "N",
            "help": "resume from at most N states of a stream; default: from each state",
        },
        "timeout": {
            "type": float,
            "default": KitOptions.seconds,
            "metavar": "SECONDS",
            "help": "time limit of each process; default: %(default)g",
        },
        "removal": {
            "type": shlex.split,
            "default": [],
            "metavar": "COMMAND",
            "help": "the command that removes the container that the connector's command starts: "
            "'docker rm --force {container}'; its name is {container} in both",
        },
        "json": {**flag, "help": "print one JSON document"},
        "verbose": {**flag, "help": "print each process on stderr"},
        "list-rules": {**flag, "help": "print the rules"},
    }
    for name, settings in options.items():
        parser.add_argument(f"--{name}", **settings)
    return parser


def _pair(text: str) -> tuple[str, str]:
    name, separator, field = text.rpartition("=")
    if not (name and separator and field):
        raise argparse.ArgumentTypeError(f"{text} is not of the form STREAM=FIELD")
    return name, field


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number greater than 0")
    return number


def _print_run(run: Run) -> None:
    text = f"{run.purpose}: {run.ended.text} ({run.ended.seconds:.1f} seconds)"
    print(printable(text, keep=""), file=sys.stderr)


def _print_error(error: ConfigError, *, machine: bool) -> None:
    answer = {
        "failure_type": error.failure_type,
        "message": error.message,
        "guidance": error.guidance,
        "detail": error.detail,
    }
    plain = printable(f"config_error: {error}")
    text = json.dumps({"error": answer}, indent=2) if machine else plain
    print(text, file=sys.stderr)
