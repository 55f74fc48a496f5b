"""Lookup of the fields that settings name in the schema of a stream."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from elt_assets.protocol.airbyte.catalog import AirbyteStream
from elt_assets.sync.selection.fields import join_path, properties

_MAX_NAMES = 20
"""Maximum number of names that an error lists."""


def is_unknown(path: Sequence[str], stream: AirbyteStream) -> bool:
    """Return whether the schema has no such field. A schema without properties allows any field."""
    return _find_unknown(path, stream) is not None


def describe_unknown(setting: str, path: Sequence[str], stream: AirbyteStream) -> str:
    """Return the message for a path in a setting that the schema does not have."""
    depth, names = _find_unknown(path, stream) or (0, [])
    near = difflib.get_close_matches(path[depth], names, n=1)
    hint = f"did you mean {join_path((*path[:depth], *near))!r}?" if near else ""
    parent = f"{join_path(tuple(path[:depth]))!r} has" if depth else "it has"
    return f"{setting}: the stream has no field {'.'.join(path)!r}; {hint or f'{parent} {join_names(names)}'}"


def join_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + more


def _find_unknown(path: Sequence[str], stream: AirbyteStream) -> tuple[int, list[str]] | None:
    """Return the first step of a path that the schema does not have, and the names that it has there.

    Returns:
        The index of the step, and the names. None if the schema allows the path.
    """
    schema: Any = stream.json_schema
    for depth, name in enumerate(path):
        declared = properties(schema)
        if not declared:
            return None
        if name not in declared:
            return depth, list(declared)
        schema = declared[name]
    return None
