"""Write the private files in a connector's arguments, and remove them when the connector ends.

Spec: Airbyte Specification, the commands' arguments.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from elt_assets.protocol.messages import State
from elt_assets.storage.scratch import scratch

_LEGACY = (None, "LEGACY")


@contextlib.contextmanager
def private_files(workdir: Path, files: Mapping[str, Any]) -> Iterator[list[str]]:
    """Write each value to a file that only this user can read, and yield the arguments `--<name> <path>`."""
    if not files:
        yield []
        return
    with scratch(workdir, "private") as folder:
        arguments = []
        for name, value in files.items():
            path = folder / f"{name}.json"
            content = value if isinstance(value, bytes) else json.dumps(value).encode()
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
                file.write(content)
            arguments += [f"--{name}", str(path)]
        yield arguments


def state_file(states: Sequence[State]) -> bytes | None:
    """Return the content of the file for `read --state`; None if there is no state.

    STREAM and GLOBAL states become a list of the messages' bodies. A LEGACY state becomes its `data` alone,
    because old connectors support no other form.

    Spec: State & Checkpointing.
    """
    legacy = [state for state in states if _is_legacy(state)]
    if len(legacy) < len(states):
        typed = (state.to_json() for state in states if not _is_legacy(state))
        return b"[" + b",".join(typed) + b"]"
    if not legacy or legacy[-1].data is None:
        return None
    return bytes(legacy[-1].data)


def _is_legacy(state: State) -> bool:
    return state.type in _LEGACY and state.stream is None and state.global_ is None
