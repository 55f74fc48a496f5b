"""`elt-destination`: its commands, their arguments and their exit codes.

The program `elt-destination` and `python -m elt_assets.destination` run `main`.

Spec: Airbyte Specification, Destination: `spec`, `check`, `write` (the command line of connectors).
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from typing import BinaryIO

from elt_assets import paths
from elt_assets.destination.airbyte_read import AirbyteRead
from elt_assets.destination.process import FAILED, OK, Termination, output_stream, provider
from elt_assets.destination.settings import SPECIFICATION, Settings
from elt_assets.destination.tables import PROTOCOL_SYNC_MODES
from elt_assets.errors import EltError
from elt_assets.lake.admin.write_check import probe
from elt_assets.lake.session import SparkProvider
from elt_assets.machine_faults import translate
from elt_assets.protocol import message_output
from elt_assets.protocol.catalog import load_catalog, load_config
from elt_assets.protocol.message_output import Output, OutputClosedError
from elt_assets.protocol.messages import Message, Specification
from elt_assets.storage.folders import scratch
from elt_assets.storage.location import Location

DOCUMENTATION = "https://docs.airbyte.com/understanding-airbyte/airbyte-protocol"
"""The documentation of the interface. The documentation of the config is in the specification itself."""


def main(
    argv: Sequence[str] | None = None,
    stdin: BinaryIO | None = None,
    stdout: BinaryIO | None = None,
    spark: SparkProvider | None = None,
) -> int:
    """Run one command and return its exit code.

    0: success; also if `check` reports that nothing can be written. 1: failure; an ERROR trace has the
    reason. 128 plus the number of a signal: ended by this signal.

    Args:
        stdout: gets the messages. Default: the stdout of the process; then nothing else is written to it, and
            signals end the command in order.
        spark: provides the Spark session. Default: the process starts its own.

    Raises:
        SystemExit: the arguments are not valid (code 2), or request help.
    """
    arguments = _parser().parse_args(argv)
    with output_stream(stdout) as stream:
        output = Output(stream, flushes=True)
        try:
            if arguments.command == "spec":
                output.send([_specification()])
                return OK
            if arguments.command == "check":
                return _check(arguments.config, output, spark)
            return _write(arguments, stdin or sys.stdin.buffer, output, spark)
        except OutputClosedError:
            return FAILED
        except Termination as signal:
            with contextlib.suppress(OutputClosedError):
                output.log("ERROR", f"{signal}; nothing more is committed")
            return signal.code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="elt-destination", description="The lake as an Airbyte destination."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("spec", help="print the specification of the config")
    for name, files, text in (
        ("check", ["config"], "write a row to the lake, read it, and remove it"),
        (
            "write",
            ["config", "catalog"],
            "write the messages on stdin to the lake; print each state once it is committed",
        ),
    ):
        command = commands.add_parser(name, help=text)
        for file in files:
            command.add_argument(f"--{file}", required=True, metavar="FILE")
    return parser


def _specification() -> Message:
    """Return the SPEC message.

    Spec: Actor Specification.
    """
    body = Specification(
        connectionSpecification=SPECIFICATION,
        documentationUrl=DOCUMENTATION,
        protocol_version=message_output.PROTOCOL_VERSION,
        supportsIncremental=True,
        supported_destination_sync_modes=PROTOCOL_SYNC_MODES,
    )
    return Message(type="SPEC", spec=body)


def _check(path: str, output: Output, spark: SparkProvider | None) -> int:
    reason = None
    try:
        config = Settings.from_config(load_config(path))
        with scratch(paths.staging(), "check"):
            probe(
                (spark or provider(config)).get(),
                Location.parse(config.lake).child(config.namespace),
            )
    except EltError as error:
        reason = str(error)
    except Exception as error:  # noqa: BLE001 - `check` reports errors of storage and of Spark
        reason = str(translate(error) or f"{type(error).__name__}: {error}")
    output.connection(succeeded=reason is None, text=reason)
    return OK


def _write(
    arguments: argparse.Namespace, stdin: BinaryIO, output: Output, spark: SparkProvider | None
) -> int:
    read: AirbyteRead | None = None
    try:
        config = Settings.from_config(load_config(arguments.config))
        catalog = load_catalog(arguments.catalog)
        read = AirbyteRead(config, catalog, spark or provider(config), stdin, output)
        read.run()
    except OutputClosedError:
        raise
    except Exception as error:  # noqa: BLE001 - any error is reported as an ERROR trace
        stream = None if read is None else read.stream_of(error)
        output.error(translate(error) or error, stream and stream.descriptor)
        return FAILED
    return OK
