"""`elt-destination`: its commands, their arguments, and how they end.

spec: Airbyte Specification, Destination: `spec`, `check`, `write` (the command line of connectors).
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from typing import BinaryIO

from elt_assets import paths
from elt_assets.destination.opening import PROTOCOL_SYNC_MODES
from elt_assets.destination.output import Output
from elt_assets.destination.process import FAILED, OK, Terminated, answering, provider
from elt_assets.destination.settings import SPECIFICATION, Settings
from elt_assets.destination.writing import Write
from elt_assets.errors import EltError
from elt_assets.lake.admin.write_check import probe
from elt_assets.lake.spark.session import SparkProvider
from elt_assets.protocol.airbyte import message_factory
from elt_assets.protocol.airbyte.arguments import load_catalog, load_config
from elt_assets.protocol.airbyte.messages import Message, Specification
from elt_assets.protocol.output import OutputClosedError
from elt_assets.storage.scratch import scratch


def main(
    argv: Sequence[str] | None = None,
    stdin: BinaryIO | None = None,
    stdout: BinaryIO | None = None,
    spark: SparkProvider | None = None,
) -> int:
    """Run one command; returns the exit code.

    0: done; so is a `check` that found that nothing can be written. 1: it failed, and an ERROR trace says
    why. 128 and the signal's number: it was ended by a signal.

    Args:
        stdout: where messages go. Without one they go to the process's stdout, which nothing else is written
            to then, and signals end the command in order.
        spark: the session; without one the process starts its own.

    Raises:
        SystemExit: the arguments are wrong (code 2), or ask for help.
    """
    arguments = _parser().parse_args(argv)
    with answering(stdout) as own:
        output = Output(own)
        try:
            if arguments.command == "spec":
                output.send([_specification()])
                return OK
            if arguments.command == "check":
                return _check(arguments.config, output, spark)
            return _write(arguments, stdin or sys.stdin.buffer, output, spark)
        except OutputClosedError:
            return FAILED
        except Terminated as ended:
            with contextlib.suppress(OutputClosedError):
                output.log("ERROR", f"{ended}; nothing more is committed")
            return ended.code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="elt-destination", description="The lake as an Airbyte destination."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("spec", help="how it is configured")
    for name, files, text in (
        ("check", ["config"], "write a row to the lake, and remove it"),
        (
            "write",
            ["config", "catalog"],
            "write the messages on stdin; print states once committed",
        ),
    ):
        command = commands.add_parser(name, help=text)
        for file in files:
            command.add_argument(f"--{file}", required=True, metavar="FILE")
    return parser


def _specification() -> Message:
    """spec: Actor Specification."""
    body = Specification(
        connectionSpecification=SPECIFICATION,
        protocol_version=message_factory.PROTOCOL_VERSION,
        supportsIncremental=True,
        supported_destination_sync_modes=PROTOCOL_SYNC_MODES,
    )
    return Message(type="SPEC", spec=body)


def _check(path: str, output: Output, spark: SparkProvider | None) -> int:
    reason = None
    try:
        config = Settings.from_config(load_config(path))
        with scratch(paths.staging(), "check"):
            probe((spark or provider(config)).get(), f"{config.lake}/{config.namespace}")
    except EltError as error:
        reason = str(error)
    except Exception as error:  # noqa: BLE001 - of storage, of Spark: it is what `check` is to tell
        reason = f"{type(error).__name__}: {error}"
    output.connection(succeeded=reason is None, text=reason)
    return OK


def _write(
    arguments: argparse.Namespace, stdin: BinaryIO, output: Output, spark: SparkProvider | None
) -> int:
    sync: Write | None = None
    try:
        config = Settings.from_config(load_config(arguments.config))
        catalog = load_catalog(arguments.catalog)
        sync = Write(config, catalog, spark or provider(config), output)
        sync.run(stdin)
    except OutputClosedError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, the reader is told
        stream = None if sync is None else sync.stream_of(error)
        output.error(error, stream and stream.descriptor)
        return FAILED
    return OK
