"""The schema of records that have fields of their parent's record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elt_assets.errors import SystemFailure

Schema = Mapping[str, Any]


def add_parent_fields(
    stream: str, schema: Schema, parent: Schema | None, names: Mapping[str, str]
) -> Schema:
    """Return the JSON schema of a child stream with the fields of its parent.

    Args:
        stream: the name of the stream, for errors.
        schema: its own JSON schema.
        parent: the schema of the parent; None if it has none.
        names: the names in the records by those of the parent's fields.

    Raises:
        SystemFailure: the parent has no such field, or two fields would have the same name.
    """
    if not names:
        return schema
    if parent is None:
        raise _describe(stream, "it has no parent", "set `parent`")
    own, declared = schema.get("properties") or {}, parent.get("properties") or {}
    for field, name in names.items():
        if declared and field not in declared:
            raise _describe(stream, f"the parent has no field {field!r}", "correct the name")
        if name in own or list(names.values()).count(name) > 1:
            raise _describe(
                stream, f"the name {name!r} is that of another field", "choose another name"
            )
    added = {name: declared.get(field, {}) for field, name in names.items()}
    return {**schema, "properties": {**own, **added}}


def _describe(stream: str, reason: str, guidance: str) -> SystemFailure:
    return SystemFailure(
        f"`parent_fields` of stream {stream!r} cannot be used: {reason}", guidance=guidance
    )
