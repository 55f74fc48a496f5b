"""`target-elt`: the lake as a Singer target.

Spec: Singer: `target --config FILE < messages > states`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Sequence
from importlib import metadata
from typing import Any, BinaryIO

from elt_assets.destination.process import FAILED, OK, Termination, output_stream, provider
from elt_assets.destination.settings import TARGET_SPECIFICATION, Settings
from elt_assets.destination.singer_read import SingerRead
from elt_assets.errors import SystemFailure
from elt_assets.lake.session import SparkProvider
from elt_assets.machine_faults import translate
from elt_assets.protocol.catalog import load_config


def main(
    argv: Sequence[str] | None = None,
    stdin: BinaryIO | None = None,
    stdout: BinaryIO | None = None,
    spark: SparkProvider | None = None,
) -> int:
    """Load the messages of a tap on stdin, and return the exit code.

    States go to stdout, one JSON value per line. Log lines go to stderr. Exit codes: 0: success. 1: failure.
    128 plus the number of a signal: ended by this signal.

    Args:
        stdout, spark: as for `elt-destination`.

    Raises:
        SystemExit: the arguments are not valid (code 2), or request help.
    """
    parser = argparse.ArgumentParser(prog="target-elt", description="The lake as a Singer target.")
    parser.add_argument("--config", metavar="FILE", help="JSON; default: an empty config")
    parser.add_argument("--version", action="version", version=f"%(prog)s {_version()}")
    parser.add_argument("--about", action="store_true", help="print a description and the settings")
    parser.add_argument("--format", choices=["json"], default="json", help="format of --about")
    arguments = parser.parse_args(argv)
    path = arguments.config
    with output_stream(stdout) as stream:
        try:
            if arguments.about:
                stream.write(json.dumps(_about(), indent=2).encode() + b"\n")
                return OK
            config = Settings.from_target_config(load_config(path) if path else {})
            messages = stdin or sys.stdin.buffer
            read = SingerRead(config, spark or provider(config), messages, _log)
            with contextlib.closing(read.run()) as states:
                for state in states:
                    stream.write(bytes(state) + b"\n")
                    stream.flush()
        except BrokenPipeError:
            return FAILED
        except Exception as error:  # noqa: BLE001 - an error of a library is shown in one line
            failure = translate(error) or SystemFailure(
                f"{type(error).__name__}: {error}", guidance="report this as a bug"
            )
            _log(failure.failure_type, str(failure))
            return FAILED
        except Termination as signal:
            _log("ERROR", f"{signal}; nothing more is committed")
            return signal.code
    return OK


def _version() -> str:
    return metadata.version("elt-assets")


def _about() -> dict[str, Any]:
    """Return the answer to `--about`.

    Spec: Meltano SDK, `--about --format=json`.
    """
    return {
        "name": "target-elt",
        "description": "The lake as a Singer target.",
        "version": _version(),
        "capabilities": ["about", "activate-version", "batch", "hard-delete", "target-schema"],
        "settings": TARGET_SPECIFICATION,
    }


def _log(level: str, text: str) -> None:
    sys.stderr.write(f"target-elt: {level}: {text}\n")
