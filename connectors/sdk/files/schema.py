"""The JSON schemas of columns: those that a config names, and those that the values of a sample have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from connectors.sdk.columns import types as t

Json = dict[str, Any]
PATH, MODIFIED = "_file_path", "_file_modified_at"
"""The columns with the path of a row's file, and its time of modification."""
TYPES: Mapping[str, t.ColumnType] = {
    "string": t.STRING,
    "integer": t.INT64,
    "big_integer": t.BIG_INTEGER,
    "number": t.DOUBLE,
    "decimal": t.BIG_DECIMAL,
    "boolean": t.BOOL,
    "date": t.DATE32,
    "timestamp": t.TIMESTAMP_UTC,
    "timestamp_without_timezone": t.TIMESTAMP,
    "time": t.TIME64,
    "binary": t.BINARY,
    "json": t.JSON,
    "object": t.OBJECT,
    "array": t.ARRAY,
}
"""The types by their names in a config."""
_WIDER = {
    frozenset(("integer", "number")): "number",
    frozenset(("integer", "decimal")): "decimal",
    frozenset(("big_integer", "integer")): "big_integer",
    frozenset(("big_integer", "number")): "number",
    frozenset(("big_integer", "decimal")): "decimal",
    frozenset(("decimal", "number")): "number",
    frozenset(("date", "timestamp_without_timezone")): "timestamp_without_timezone",
}


@dataclass
class ColumnShape:
    """What the values of a column are, as far as they were sampled. `kinds`: names of `TYPES`."""

    kinds: set[str] = field(default_factory=set)
    fields: dict[str, ColumnShape] = field(default_factory=dict)
    items: ColumnShape | None = None

    def merge(self, other: ColumnShape) -> None:
        """Add what another column of the same name is."""
        self.kinds |= other.kinds
        for name, shape in other.fields.items():
            self.fields.setdefault(name, ColumnShape()).merge(shape)
        if other.items is not None:
            self.items = self.items or ColumnShape()
            self.items.merge(other.items)

    def add(self, value: Any) -> None:
        """Add a value, as JSON has it."""
        if isinstance(value, dict):
            self.kinds.add("object")
            for name, item in value.items():
                self.fields.setdefault(name, ColumnShape()).add(item)
        elif isinstance(value, list):
            self.kinds.add("array")
            self.items = self.items or ColumnShape()
            for item in value:
                self.items.add(item)
        elif value is not None:
            self.kinds.add(_kind_of(value))

    def to_schema(self, *, mixed: str = "json") -> Json:
        """Return the schema. `mixed`: the type of a column whose values have several."""
        kinds = set(self.kinds)
        for pair, wider in _WIDER.items():
            if pair <= kinds:
                kinds = kinds - pair | {wider}
        if len(kinds) > 1:
            return TYPES[mixed].describe()
        kind = next(iter(kinds), "string")
        schema = TYPES[kind].describe()
        if kind == "object" and self.fields:
            schema["properties"] = {name: own.to_schema() for name, own in self.fields.items()}
        if kind == "array" and self.items is not None and self.items.kinds:
            schema["items"] = self.items.to_schema()
        return schema


def _kind_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer" if -(2**63) <= value < 2**63 else "big_integer"
    return "number" if isinstance(value, float) else "string"


Shapes = dict[str, ColumnShape]
"""The columns of files, by their names."""


def merge_shapes(all_shapes: Iterable[Shapes]) -> Shapes:
    """Return the columns of several files."""
    merged: Shapes = {}
    for shapes in all_shapes:
        for name, shape in shapes.items():
            merged.setdefault(name, ColumnShape()).merge(shape)
    return merged


def make_schema(
    shapes: Shapes, overrides: Mapping[str, str], *, mixed: str, file_columns: bool
) -> Json:
    """Return the JSON schema of a stream.

    Args:
        overrides: the types of columns that the config has.
        mixed: the type of a column whose values have several.
        file_columns: whether rows have the columns of their file.
    """
    properties = {name: shape.to_schema(mixed=mixed) for name, shape in shapes.items()}
    properties |= {name: TYPES[kind].describe() for name, kind in overrides.items()}
    if file_columns:
        properties |= {PATH: t.STRING.describe(), MODIFIED: t.TIMESTAMP_UTC.describe()}
    return {"type": "object", "properties": properties}


def kind_of_schema(schema: Any) -> str:
    """Return the name in `TYPES` of the type of a column that has a schema; `json` for any other."""
    if not isinstance(schema, Mapping):
        return "json"
    for name, own in TYPES.items():
        if _core(schema) == _core(own.schema):
            return name
    return "string" if _core(schema)[0] == {"string"} else "json"


def _core(schema: Mapping[str, Any]) -> tuple[Any, ...]:
    types = schema.get("type") or ()
    names = frozenset([types] if isinstance(types, str) else types) - {"null"}
    special = schema.get("airbyte_type")
    form = schema.get("format")
    if form == "date-time" and special is None:
        special = "timestamp_with_timezone"
    return names, form, special, schema.get("contentEncoding")
