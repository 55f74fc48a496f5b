"""Start Airbyte's engine in place of this process."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from connectors.sdk.airbyte.output import SourceOutput
from elt_assets.errors import ConfigError

_PROGRAM = Path(__file__).with_name("program.py")
_INJECTED = "__injected_"
"""The prefix of the fields of a config by which the engine takes manifests and code."""
_UNCHECKED = (
    "This engine does not check the addresses of requests, and `trust` does not limit where credentials go. "
    "Write `engine: airbyte` beside `manifest` to accept this, or `engine: ours` to refuse these streams"
)
_REASONS = 3
"""Number of reasons that the log shows."""


def start(
    python: Path,
    manifest: Path,
    modules: Sequence[str],
    words: Sequence[str],
    reasons: Sequence[str],
    *,
    is_chosen: bool,
) -> NoReturn:
    """Replace this process by one of Airbyte's engine.

    Args:
        python: the Python of an environment with airbyte-cdk.
        manifest: the manifest. That it names no other Python than that of `modules` has been checked.
        modules: the modules whose Python the manifest may name. With them, the engine also imports from the
            folder of the manifest and from the environment of this process.
        words: the command and its options.
        reasons: why this engine runs the manifest, for the log.
        is_chosen: whether the user has chosen this engine. If not, the log warns that it does not check the
            addresses of requests; whoever trusts modules has been told that their Python does not either.

    Raises:
        ConfigError: the config has fields by which the engine would get a manifest or code, or Python cannot
            be started.
    """
    _refuse_injected(words)
    output = SourceOutput(sys.stdout.buffer)
    listed = [
        *reasons[:_REASONS],
        *([f"and {more} more"] if (more := len(reasons) - _REASONS) > 0 else []),
    ]
    text = f"manifest: it runs on Airbyte's engine: {'; '.join(listed)}"
    if is_chosen or modules:
        output.log("INFO", text)
    else:
        output.log("WARN", f"{text}. {_UNCHECKED}")
    output.flush()
    command = [str(python), "-I", str(_PROGRAM), f"--manifest={manifest}"]
    command += [f"--trust={module}" for module in modules]
    command += [f"--path={folder}" for folder in sys.path if folder and modules]
    try:
        os.execv(python, [*command, *words])  # noqa: S606 - there is no shell to be used
    except OSError as error:
        raise ConfigError(
            f"{python} cannot be started: {error.strerror}",
            guidance="give the Python of an environment with airbyte-cdk",
        ) from error


def _refuse_injected(words: Sequence[str]) -> None:
    names = sorted(name for name in _config(words) if name.startswith(_INJECTED))
    if names:
        raise ConfigError(
            f"the config has the fields {', '.join(names)}, by which Airbyte's engine takes code",
            guidance="remove them from the config: the manifest of the connection is the one that runs",
        )


def _config(words: Sequence[str]) -> Mapping[str, Any]:
    """Return the config that the options name; nothing if it cannot be read: the engine reports that."""
    for index, word in enumerate(words):
        option, _, path = word.partition("=")
        if option == "--config":
            try:
                config = json.loads(Path(path or words[index + 1]).read_bytes())
            except (OSError, ValueError, IndexError):
                continue
            if isinstance(config, dict):
                return config
    return {}
