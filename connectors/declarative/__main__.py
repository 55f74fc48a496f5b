"""The command line of manifests: that of any source, after `--manifest FILE`.

The manifest runs on the engine of this project, unless `--engine airbyte` is written, or it has something
that only Airbyte's engine can run. That engine is a process of its own, which replaces this one.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from connectors.declarative.airbyte_engine import start
from connectors.declarative.manifest.loader import refuse_for_all_engines
from connectors.declarative.manifest.report import ManifestError
from connectors.declarative.source import ManifestSource
from connectors.sdk import run
from connectors.sdk.airbyte.output import SourceOutput
from connectors.sdk.limits import limit_memory
from elt_assets.errors import NEEDS_AIRBYTE, ConfigError

AIRBYTE, OURS = "airbyte", "ours"


def main(argv: Sequence[str]) -> int:
    """Run a command of the source that a manifest describes, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="connectors.declarative", add_help=False, allow_abbrev=False
    )
    parser.add_argument("--manifest", type=Path, required=True, metavar="FILE")
    parser.add_argument("--trust", action="append", default=[], metavar="MODULE|ORIGIN")
    parser.add_argument("--engine", choices=[AIRBYTE, OURS])
    parser.add_argument("--airbyte-python", type=Path, metavar="FILE")
    parser.add_argument("--changed-config", type=Path, metavar="FILE")
    arguments, words = parser.parse_known_args(argv)
    changed = arguments.changed_config
    source = ManifestSource(
        arguments.manifest,
        arguments.trust,
        [] if changed is None else json.loads(changed.read_bytes()),
    )
    try:
        # Templates may make values of any size. Airbyte's engine has no such limit: a process that replaces
        # this one would inherit it, and the Python of others may need more.
        with limit_memory():
            reasons = _reasons_for_airbyte(arguments, source)
            if not reasons:
                return run(source, words)
        if arguments.airbyte_python is None:
            # No failure: whoever started this process may install the engine, and start it again.
            print(f"the manifest needs Airbyte's engine: {'; '.join(reasons)}", file=sys.stderr)
            return NEEDS_AIRBYTE
        start(
            arguments.airbyte_python,
            arguments.manifest,
            source.modules,
            words,
            reasons,
            is_chosen=arguments.engine == AIRBYTE,
        )
    except ConfigError as error:
        output = SourceOutput(sys.stdout.buffer)
        output.error(error)
        output.flush()
        return 1


def _reasons_for_airbyte(arguments: argparse.Namespace, source: ManifestSource) -> Sequence[str]:
    """Return why the manifest is to run on Airbyte's engine; nothing if it is not.

    Raises:
        ConfigError: it is, and may not.
    """
    if arguments.engine == OURS:
        return ()
    if arguments.engine == AIRBYTE:
        refuse_for_all_engines(arguments.manifest, source.modules)
        return ["`engine: airbyte`"]
    try:
        return source.manifest.reasons_for_airbyte
    except ManifestError as error:
        return error.reasons_for_airbyte
    except ConfigError:
        return ()  # the command reports it


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
