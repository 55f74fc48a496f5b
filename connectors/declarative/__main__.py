"""The command line of manifests: that of any source, after `--manifest FILE`."""

import argparse
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path

from connectors.declarative.source import ManifestSource
from connectors.sdk import run
from connectors.sdk.limits import limit_memory
from elt_assets.errors import ConfigError


def main(argv: Sequence[str]) -> int:
    """Run a command of the source that a manifest describes, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="connectors.declarative", add_help=False, allow_abbrev=False
    )
    parser.add_argument("--manifest", type=Path, required=True, metavar="FILE")
    parser.add_argument("--trust", action="append", default=[], metavar="MODULE|ORIGIN")
    arguments, rest = parser.parse_known_args(argv)
    try:
        limit_memory()  # of what templates make
    except ConfigError as error:
        parser.error(str(error))
    source, messages = ManifestSource(arguments.manifest, arguments.trust), sys.stdout.buffer
    with redirect_stdout(sys.stderr):  # what components in Python print are no messages
        return run(source, rest, messages)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
