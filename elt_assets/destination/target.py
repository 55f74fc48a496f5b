"""`target-elt`: the lake as a Singer target.

spec: Singer: `target --config FILE < messages > states`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Sequence
from importlib import metadata
from typing import Any, BinaryIO

from elt_assets.destination.loading import Load
from elt_assets.destination.process import FAILED, OK, Terminated, answering, provider
from elt_assets.destination.settings import TARGET_SPECIFICATION, Settings
from elt_assets.errors import EltError
from elt_assets.lake.spark.session import SparkProvider
from elt_assets.protocol.airbyte.arguments import load_config


def main(
    argv: Sequence[str] | None = None,
    stdin: BinaryIO | None = None,
    stdout: BinaryIO | None = None,
    spark: SparkProvider | None = None,
) -> int:
    """Load what a tap says on stdin; returns the exit code.

    States go to stdout, one JSON value a line; what is worth a user's knowing goes to stderr. 0: done. 1: it
    failed. 128 and the signal's number: it was ended by a signal.

    Args:
        stdout: as of `elt-destination`; `spark`: likewise.

    Raises:
        SystemExit: the arguments are wrong (code 2), or ask for help.
    """
    parser = argparse.ArgumentParser(prog="target-elt", description="The lake as a Singer target.")
    parser.add_argument("--config", metavar="FILE", help="JSON; default: an empty one")
    parser.add_argument("--version", action="version", version=f"%(prog)s {_version()}")
    parser.add_argument("--about", action="store_true", help="say what it is, and its settings")
    parser.add_argument("--format", choices=["json"], default="json", help="of --about")
    arguments = parser.parse_args(argv)
    path = arguments.config
    with answering(stdout) as own:
        try:
            if arguments.about:
                own.write(json.dumps(_about(), indent=2).encode() + b"\n")
                return OK
            config = Settings.of_target(load_config(path) if path else {})
            load = Load(config, spark or provider(config), _log)
            with contextlib.closing(load.run(stdin or sys.stdin.buffer)) as states:
                for state in states:
                    own.write(bytes(state) + b"\n")
                    own.flush()
        except BrokenPipeError:
            return FAILED
        except EltError as error:
            _log(error.failure_type, str(error))
            return FAILED
        except Terminated as ended:
            _log("ERROR", f"{ended}; nothing more is committed")
            return ended.code
    return OK


def _version() -> str:
    return metadata.version("elt-assets")


def _about() -> dict[str, Any]:
    """spec: Meltano SDK, `--about --format=json`."""
    return {
        "name": "target-elt",
        "description": "The lake as a Singer target.",
        "version": _version(),
        "capabilities": ["about", "activate-version", "batch", "hard-delete", "target-schema"],
        "settings": TARGET_SPECIFICATION,
    }


def _log(level: str, text: str) -> None:
    sys.stderr.write(f"target-elt: {level}: {text}\n")
