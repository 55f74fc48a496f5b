"""The command line of a source: an Airbyte source by its commands, a Singer tap by its options.

Spec: Airbyte Protocol, Actor Interface; Singer, running and developing taps.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import BinaryIO

from connectors.sdk.airbyte.commands import add_commands, run_command
from connectors.sdk.airbyte.output import SourceOutput
from connectors.sdk.lent import await_returns
from connectors.sdk.programs import offer
from connectors.sdk.singer.commands import add_options, run_tap
from connectors.sdk.singer.output import TapOutput
from connectors.sdk.source import Source
from elt_assets.protocol.message_output import Output, OutputClosedError

_EPILOG = """As a Singer tap: --config FILE [--catalog FILE] [--state FILE]; or --discover, --about, --version
or --test."""


def run(source: Source, argv: Sequence[str], stdout: BinaryIO | None = None) -> int:
    """Run one command and return the exit code; messages go to `stdout`.

    Without a command (`spec`, `read` …), the options are those of a Singer tap (`--config`, `--discover` …).

    Returns:
        0: success, also for a `check` that finds the source unusable. 1: failure, which a TRACE ERROR, or the
        log of a tap, describes; or the reader has closed the output.

    Raises:
        SystemExit: the arguments are not valid (code 2), or request help.
    """
    offer(source)
    stream = stdout or sys.stdout.buffer
    if argv and argv[0].startswith("-") and argv[0] not in ("-h", "--help"):
        tap = TapOutput(stream, sys.stderr)
        arguments = add_options(argparse.ArgumentParser(prog=source.name)).parse_args(argv)
        return _exit_code(lambda: run_tap(source, arguments, tap), tap)
    output = SourceOutput(stream)
    parser = argparse.ArgumentParser(prog=source.name, epilog=_EPILOG)
    add_commands(parser)
    arguments = parser.parse_args(argv)
    return _exit_code(lambda: run_command(source, arguments, output), output)


def _exit_code(command: Callable[[], int], output: Output) -> int:
    """Run a command, which returns the number of failures, and report its error."""
    try:
        failures = _report_errors(command, output)
        output.flush()
    except OutputClosedError:
        return 1
    await_returns()
    return 1 if failures else 0


def _report_errors(command: Callable[[], int], output: Output) -> int:
    try:
        return command()
    except OutputClosedError:
        raise
    except Exception as error:  # noqa: BLE001 - every error is reported
        output.error(error)
        return 1
