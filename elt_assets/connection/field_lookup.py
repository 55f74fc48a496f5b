"""Lookup of the fields that settings name in the schema of a stream."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from elt_assets.protocol.catalog import AirbyteStream
from elt_assets.sync.selection.fields import join_path, properties

_MAX_NAMES = 20
"""Maximum number of names that an error lists."""


def is_unknown(path: Sequence[str], stream: AirbyteStream) -> bool:
    """Return whether the schema has no such field. A schema without properties allows any field."""
    return _find_unknown(path, stream) is not None


def describe_unknown(
    setting: str,
    fields: Iterable[Sequence[str]],
    stream: AirbyteStream,
    *,
    must_be_declared: bool = False,
) -> Iterator[str]:
    """Yield a message for each field in a setting that the schema does not have.

    Args:
        must_be_declared: a schema without properties has none of the fields; otherwise it allows any.
    """
    for path in fields:
        unknown = _find_unknown(path, stream)
        if must_be_declared and not properties(stream.json_schema):
            unknown = 0, []
        if unknown is None:
            continue
        depth, names = unknown
        near = difflib.get_close_matches(path[depth], names, n=1)
        parent = f"{join_path(tuple(path[:depth]))!r} has" if depth else "it has"
        hint = f"{parent} {join_names(names)}"
        if near:
            hint = f"did you mean {join_path((*path[:depth], *near))!r}?"
        yield f"{setting}: the stream has no field {'.'.join(path)!r}; {hint}"


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
