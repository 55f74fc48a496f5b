"""Added columns: those of fields that no catalog declared (`on_undeclared: add`).

Used by `lake.write` wherever the columns of a stream are compared with those of its table, by `pipeline`,
which asks the source for the added fields, and by `elt discover`, which names them.

The catalog is a file that may be older than the table, and read-only. So an added column is marked in the
metadata of the table's column (`logical_types.ADDED`), which each commit keeps, and which a compaction, a
move or a restore takes along. From then on its field counts as declared, whatever the catalog says: it is
read, and no schema change drops it. A catalog that declares it later declares the same column, because a
field keeps the name of the column that it has (`from_json_schema`).
`tests/orchestration/test_added_columns.py::test_a_field_becomes_a_column_and_stays_one`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from pyspark.sql import types as t

from elt_assets.lake.columns import from_json_schema
from elt_assets.lake.columns.logical_types import (
    ADDED,
    Array,
    Column,
    LogicalType,
    Scalar,
    Struct,
    column_of,
    core,
    union,
)
from elt_assets.sync.field_selection import properties

NO_FIELDS: Mapping[str, Any] = MappingProxyType({})


def declare_columns(
    schema: Mapping[str, Any],
    own: t.StructType,
    names: from_json_schema.Names,
    new_fields: Mapping[str, Any] = NO_FIELDS,
) -> list[Column]:
    """Return the columns that a stream's schema declares, and those that were added to its table, or are now.

    Args:
        schema: the JSON schema of the stream.
        own: the columns of the table, without those of this project.
        names: the names of the columns that fields have already.
        new_fields: the declarations of fields that are added now.
    """
    declared = from_json_schema.columns(schema, names)
    present = list(map(column_of, own.fields))
    if new_fields:
        # The names of declared fields come first: an added one gives way.
        names_in_use = from_json_schema.read_names(
            t.StructType([column.field for column in declared])
        )
        fields = join_fields(schema.get("properties") or {}, new_fields)
        declared = from_json_schema.columns(
            {**schema, "properties": fields}, {**names, **names_in_use}
        )
    return _join_added(declared, present)


def join_fields(declared: Mapping[str, Any], new_fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the declarations of fields with those that were new_fields, which are marked as added. What is
    declared stays as it is."""
    joined = dict(declared)
    for name, schema in new_fields.items():
        present = joined.get(name)
        if present is None or ADDED in present:
            joined[name] = {**schema, ADDED: True}
            continue
        for key in ("properties", "items"):
            inner, more = present.get(key), schema.get(key)
            if isinstance(inner, Mapping) and isinstance(more, Mapping):
                is_object = key == "properties"
                part = (
                    join_fields(inner, more)
                    if is_object
                    else join_fields({"": inner}, {"": more})[""]
                )
                present = {**present, key: part}
        joined[name] = present
    return joined


def _join_added(declared: Sequence[Column], present: Sequence[Column]) -> list[Column]:
    """Return declared columns, and those that the table has as added ones, also within objects. An added
    column that the table has already gets a type that holds its values, too."""
    by_name = {column.name: column for column in present}
    names = {column.name for column in declared}
    joined = [
        replace(column, kind=_join_kinds(column, by_name[column.name].kind))
        if column.name in by_name
        else column
        for column in declared
    ]
    return [*joined, *(c for c in present if c.is_added and c.name not in names)]


def _join_kinds(column: Column, present: LogicalType) -> LogicalType:
    return union(column.kind, present) if column.is_added else _join_inner(column.kind, present)


def _join_inner(kind: LogicalType, present: LogicalType) -> LogicalType:
    if isinstance(kind, Struct) and isinstance(present, Struct):
        return Struct(tuple(_join_added(kind.fields, present.fields)))
    if isinstance(kind, Array) and isinstance(present, Array):
        return Array(_join_inner(kind.items, present.items))
    return kind


def list_added(columns: Sequence[Column]) -> list[tuple[list[str], Column]]:
    """Return the added columns, also within objects, with the paths of their fields in the source."""
    added = []
    for column in columns:
        if column.is_added:
            added.append(([column.source], column))
        elif isinstance(kind := core(column.kind), Struct):
            added += [([column.source, *path], c) for path, c in list_added(kind.fields)]
    return added


_SCALARS: Mapping[LogicalType, Mapping[str, Any]] = {
    Scalar.TEXT: {"type": ["null", "string"]},
    Scalar.BOOLEAN: {"type": ["null", "boolean"]},
    Scalar.INTEGER: {"type": ["null", "integer"]},
    Scalar.BIG_INTEGER: {"type": ["null", "integer"], "airbyte_type": "big_integer"},
    Scalar.NUMBER: {"type": ["null", "number"]},
    Scalar.BIG_NUMBER: {"type": ["null", "number"], "airbyte_type": "big_number"},
    Scalar.DATE: {"type": ["null", "string"], "format": "date"},
    Scalar.TIMESTAMP: {"type": ["null", "string"], "format": "date-time"},
    Scalar.TIMESTAMP_NTZ: {
        "type": ["null", "string"],
        "format": "date-time",
        "airbyte_type": "timestamp_without_timezone",
    },
    Scalar.BINARY: {"type": ["null", "string"], "contentEncoding": "base64"},
}
"""The declarations of the scalars that a table's schema keeps."""
_ANY = {"type": ["array", "boolean", "integer", "null", "number", "object", "string"]}


def describe_field(kind: LogicalType) -> dict[str, Any]:
    """Return the declaration of a field whose column has a type, as `from_json_schema` reads it."""
    if isinstance(kind, Array):
        return {"type": ["null", "array"], "items": describe_field(kind.items)}
    if isinstance(kind, Struct):
        fields = {column.source: describe_field(column.kind) for column in kind.fields}
        return {"type": ["null", "object"], "properties": fields}
    return dict(_SCALARS.get(kind, _ANY))


def list_missing(own: t.StructType, declared: Mapping[str, Any]) -> dict[str, Any]:
    """Return the declarations of the added fields of a table that a catalog does not have.

    Args:
        declared: the fields that it declares, by their names.
    """
    return _leave_out(_describe_added(list(map(column_of, own.fields))), declared)


def _describe_added(columns: Sequence[Column]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for column in columns:
        if column.is_added:
            fields[column.source] = describe_field(column.kind)
        elif isinstance(kind := core(column.kind), Struct) and (
            inner := _describe_added(kind.fields)
        ):
            schema: dict[str, Any] = {"type": ["null", "object"], "properties": inner}
            for _ in range(_depth(column.kind)):
                schema = {"type": ["null", "array"], "items": schema}
            fields[column.source] = schema
    return fields


def _depth(kind: LogicalType) -> int:
    return 1 + _depth(kind.items) if isinstance(kind, Array) else 0


def _leave_out(fields: Mapping[str, Any], declared: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields without those that are declared, whose names may differ in case only."""
    by_lower_case = {name.lower(): name for name in declared}
    missing: dict[str, Any] = {}
    for name, schema in fields.items():
        own = name if name in declared else by_lower_case.get(name.lower())
        if own is None:
            missing[name] = schema
            continue
        inner = schema
        while "items" in inner:
            inner = inner["items"]
        rest = _leave_out(inner.get("properties", {}), properties(declared[own]))
        if rest:
            missing[name] = _put(schema, rest)
    return missing


def _put(schema: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a declaration with other fields in its innermost object."""
    if "items" in schema:
        return {**schema, "items": _put(schema["items"], fields)}
    return {**schema, "properties": fields}
