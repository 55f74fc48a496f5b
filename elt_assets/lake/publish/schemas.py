"""Columns of a Delta table as columns of its Iceberg table, with the ids by which Iceberg knows them.

`iceberg` gives an Iceberg table these columns before it names files that have them.

The files have no ids, so their columns are found by the name mapping, which names the ids of the present
schema. That is right for a column with a new id too: Delta gives a column another type, or removes it, only
in a commit that replaces every file, so each file that the table names has the column as it is now.

- A column keeps its id as long as Iceberg can read files of the former type: the type is the same, or a wider
  one (int to long, float to double, more digits of a decimal), at every depth.
- Any other column is a new one of the same name.

Test: `tests/lake/publishing/test_publish_schemas.py`
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from itertools import count
from typing import Any

from pyiceberg.exceptions import ResolveError
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema, promote
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import MappedField
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)
from pyspark.sql import types as t

from elt_assets.errors import ConfigError
from elt_assets.lake.merge.history import HIDDEN_FIELDS
from elt_assets.lake.publish.followers import TableTexts
from elt_assets.protocol.catalog import DELETE_MARKERS

_PRIMITIVES: Mapping[type[t.DataType], PrimitiveType] = {
    t.BinaryType: BinaryType(),
    t.BooleanType: BooleanType(),
    t.ByteType: IntegerType(),
    t.DateType: DateType(),
    t.DoubleType: DoubleType(),
    t.FloatType: FloatType(),
    t.IntegerType: IntegerType(),
    t.LongType: LongType(),
    t.ShortType: IntegerType(),
    t.StringType: StringType(),
    t.TimestampNTZType: TimestampType(),
    t.TimestampType: TimestamptzType(),
}
_ONLY_IN_FILES = (*(field.name for field in HIDDEN_FIELDS), *DELETE_MARKERS)
"""Columns that files may have although the table does not: of a history, and of a table that is frozen."""
_FIRST_UNUSED = 2_000_000_000
"""The first of the ids of these columns. Iceberg's own reserved ids begin above 2,147,483,000."""
_AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOT_AVRO = re.compile(r"[^A-Za-z0-9_]")
"""Matches a character that is in no name of Avro."""
_UNORDERED = (DoubleType, FloatType)
"""Types that cannot be those of identifier fields."""


def make_schema(
    columns: t.StructType, present: TableMetadata | None, texts: TableTexts | None
) -> Schema:
    """Return the Iceberg schema of a table's columns; the present one if nothing is different.

    Args:
        present: the metadata of the Iceberg table; None if there is none yet.
        texts: the descriptions of columns, and the primary key: its columns are identifier fields if all of
            them are required. None: these are as before.

    Raises:
        ConfigError: Iceberg has no such type; names the column.
    """
    before = None if present is None else present.schema()
    numbers = _Numbers(0 if present is None else present.last_column_id)
    if texts is None:
        texts = _texts_of(before)
    struct = numbers.struct(
        None if before is None else before.as_struct(), columns, "", texts.columns
    )
    fields = {field.name: field for field in struct.fields}
    keys = [fields[name] for name in texts.key if name in fields]
    is_identifying = 0 < len(keys) == len(texts.key) and all(
        field.required and not isinstance(field.field_type, _UNORDERED) for field in keys
    )
    made = Schema(
        *struct.fields,
        schema_id=0 if present is None else 1 + max(s.schema_id for s in present.schemas),
        identifier_field_ids=[field.field_id for field in keys] if is_identifying else [],
    )
    former = [] if present is None else [before, *present.schemas]
    return next((schema for schema in former if schema == made), made)


def _texts_of(schema: Schema | None) -> TableTexts:
    """Return the descriptions that a schema has, and its key."""
    if schema is None:
        return TableTexts()
    columns = {field.name: field.doc for field in schema.fields if field.doc is not None}
    key = [schema.find_column_name(number) or "" for number in schema.identifier_field_ids]
    return TableTexts(None, columns, tuple(key))


def make_name_mapping(schema: Schema) -> str:
    """Return the mapping from the names of columns in files to ids, as JSON.

    Some files have columns that are none of the table. pyiceberg reads only files whose columns are all in
    the mapping, so these have ids too, which no schema has.
    """
    own = schema.name_mapping.root
    names = {name for field in own for name in field.names}
    others = [name for name in _ONLY_IN_FILES if name not in names]
    more = [
        {"field-id": _FIRST_UNUSED + number, "names": [name]} for number, name in enumerate(others)
    ]
    return json.dumps([*_map_fields(schema.as_struct(), own), *more])


def _map_fields(struct: StructType, mapped: Sequence[MappedField]) -> list[dict[str, Any]]:
    return [
        _map_field(field.field_type, inner)
        for field, inner in zip(struct.fields, mapped, strict=True)
    ]


def _map_field(kind: IcebergType, mapped: MappedField) -> dict[str, Any]:
    """Return the mapping of a field and what is below it, as JSON.

    Of a map, the key and the value are named twice: DuckDB looks for them below the group of the entries, as
    they are in a file, and pyiceberg does not.
    """
    mapping: dict[str, Any] = {"field-id": mapped.field_id, "names": mapped.names}
    if isinstance(kind, StructType):
        return {**mapping, "fields": _map_fields(kind, mapped.fields)}
    if isinstance(kind, ListType):
        return {**mapping, "fields": [_map_field(kind.element_type, mapped.fields[0])]}
    if isinstance(kind, MapType):
        types = (kind.key_type, kind.value_type)
        pair = [_map_field(*part) for part in zip(types, mapped.fields, strict=True)]
        return {**mapping, "fields": [*pair, {"names": ["entries", "key_value"], "fields": pair}]}
    return mapping


def make_spec(
    schema: Schema, partition_by: Sequence[str], present: TableMetadata | None
) -> PartitionSpec:
    """Return the partition fields of a table: the values of its partition columns as they are.

    Manifests are Avro files, whose fields have these names. Where a column's name is none of Avro (it has a
    letter with an accent, for example), its partition field has another one: readers refuse the file, and
    DuckDB ends the process.
    """
    specs = [] if present is None else list(present.partition_specs)
    ids = {(f.source_id, f.name): f.field_id for spec in specs for f in spec.fields}
    last = max([PARTITION_FIELD_ID_START - 1, *ids.values()])
    if present is not None:
        last = max(last, present.last_partition_id or 0)
    numbers, fields = count(last + 1), list[PartitionField]()
    for column in partition_by:
        source = schema.find_field(column).field_id
        name = _name_field(column, [*schema.column_names, *(field.name for field in fields)])
        number = ids.get((source, name)) or next(numbers)
        fields.append(PartitionField(source, number, IdentityTransform(), name))
    former = [] if present is None else [present.spec(), *specs]
    for spec in former:
        if list(spec.fields) == fields:
            return spec
    return PartitionSpec(*fields, spec_id=1 + max((spec.spec_id for spec in specs), default=-1))


def _name_field(column: str, taken: Collection[str]) -> str:
    """Return the name of the partition field of a column: the column's, if Avro accepts it.

    Args:
        taken: the names of all columns, of which Iceberg permits only the field's own, and of other fields.
    """
    if _AVRO_NAME.fullmatch(column):
        return column
    name = _NOT_AVRO.sub(lambda match: f"_x{ord(match[0]):X}", f"p_{column}")
    others = {other.casefold() for other in taken}
    while name.casefold() in others:
        name += "_"
    return name


class _Numbers:
    """Gives the fields of a schema their ids: those that they have, or new ones."""

    def __init__(self, last: int):
        self._new = count(last + 1)

    def struct(
        self,
        before: StructType | None,
        columns: t.StructType,
        path: str,
        comments: Mapping[str, str],
    ) -> StructType:
        fields = {field.name: field for field in (before.fields if before is not None else ())}
        return StructType(
            *(
                self._field(
                    fields.get(column.name),
                    column,
                    f"{path}.{column.name}".lstrip("."),
                    comments.get(column.name),
                )
                for column in columns.fields
            )
        )

    def _field(
        self, before: NestedField | None, column: t.StructField, path: str, comment: str | None
    ) -> NestedField:
        is_kept = before is not None and _fits(before.field_type, column.dataType, path)
        former = before if is_kept else None
        return NestedField(
            next(self._new) if former is None else former.field_id,
            column.name,
            self._type(None if former is None else former.field_type, column.dataType, path),
            # A column that may be null once never becomes one that may not: old files may have nulls.
            required=not column.nullable and (former is None or former.required),
            doc=comment,
        )

    def _type(self, before: IcebergType | None, kind: t.DataType, path: str) -> IcebergType:
        if isinstance(kind, t.StructType):
            return self.struct(before if isinstance(before, StructType) else None, kind, path, {})
        if isinstance(kind, t.ArrayType):
            old = before if isinstance(before, ListType) else None
            number = next(self._new) if old is None else old.element_id
            element = self._type(old and old.element_type, kind.elementType, f"{path}[]")
            return ListType(number, element, element_required=False)
        if isinstance(kind, t.MapType):
            former = before if isinstance(before, MapType) else None
            ids = (
                (next(self._new), next(self._new))
                if former is None
                else (former.key_id, former.value_id)
            )
            key = self._type(former and former.key_type, kind.keyType, f"{path}{{key}}")
            value = self._type(former and former.value_type, kind.valueType, f"{path}{{value}}")
            return MapType(ids[0], key, ids[1], value, value_required=False)
        return _primitive(kind, path)


def _primitive(kind: t.DataType, path: str) -> PrimitiveType:
    if isinstance(kind, t.DecimalType):
        return DecimalType(kind.precision, kind.scale)
    primitive = _PRIMITIVES.get(type(kind))
    if primitive is None:
        raise ConfigError(
            f"the column {path} has the type {kind.simpleString()}, which Iceberg tables of format 2 lack",
            guidance="leave the field out (`fields: {exclude: …}`), or write `iceberg: false` at the stream",
        )
    return primitive


def _fits(before: IcebergType, kind: t.DataType, path: str) -> bool:
    """Return whether Iceberg reads files of a former type as the present one, at the depth of lists and maps.

    A structure always fits: each of its fields has an id of its own.
    """
    if isinstance(before, StructType):
        return isinstance(kind, t.StructType)
    if isinstance(before, ListType):
        return isinstance(kind, t.ArrayType) and _fits(before.element_type, kind.elementType, path)
    if isinstance(before, MapType):
        return (
            isinstance(kind, t.MapType)
            and _fits(before.key_type, kind.keyType, path)
            and _fits(before.value_type, kind.valueType, path)
        )
    if isinstance(kind, t.StructType | t.ArrayType | t.MapType):
        return False
    return _is_promoted(before, _primitive(kind, path))


def _is_promoted(before: IcebergType, after: PrimitiveType) -> bool:
    if before == after:
        return True
    if isinstance(before, DecimalType) and isinstance(after, DecimalType):
        return before.scale == after.scale and before.precision <= after.precision
    try:
        promote(before, after)
    except ResolveError:
        return False
    return isinstance(before, IntegerType | FloatType)
