"""The types of a table's columns for Arrow data, as Spark would store the same values; for `write.frames`.

A column without a type (all its values are null) has the type that the table has for it. If the table has
none either, the column is left out until there is a value, whose type may be any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import types as t

from elt_assets.errors import ConfigError

_types = pa.types
_SCALARS: Sequence[tuple[Callable[[Any], bool], t.DataType]] = (
    (_types.is_null, t.NullType()),
    (_types.is_boolean, t.BooleanType()),
    (_types.is_int8, t.ByteType()),
    (_types.is_int16, t.ShortType()),
    (_types.is_int32, t.IntegerType()),
    (_types.is_int64, t.LongType()),
    (_types.is_uint8, t.ShortType()),
    (_types.is_uint16, t.IntegerType()),
    (_types.is_uint32, t.LongType()),
    (_types.is_uint64, t.DecimalType(20, 0)),
    (_types.is_float16, t.FloatType()),
    (_types.is_float32, t.FloatType()),
    (_types.is_float64, t.DoubleType()),
    (_types.is_string, t.StringType()),
    (_types.is_large_string, t.StringType()),
    (_types.is_string_view, t.StringType()),
    (_types.is_binary, t.BinaryType()),
    (_types.is_large_binary, t.BinaryType()),
    (_types.is_binary_view, t.BinaryType()),
    (_types.is_fixed_size_binary, t.BinaryType()),
    (_types.is_date, t.DateType()),
)
"""Tests of Arrow types, and the types that Spark reads such values in from Parquet files."""
_LISTS = (
    *(_types.is_list, _types.is_large_list, _types.is_fixed_size_list),
    *(_types.is_list_view, _types.is_large_list_view),
)
_MAX_PRECISION = 38
_JSON = "arrow.json"


def spark_schema(schema: pa.Schema) -> t.StructType:
    """Return columns in Spark's types.

    Raises:
        ConfigError: a type has none; or there are no columns, or two whose names differ in case only.
    """
    return _spark_struct([(field.name, field.type) for field in schema], "")


def complete_types(schema: t.StructType, table_schema: t.StructType) -> t.StructType:
    """Return columns with the table's types for those without one.

    Columns and nested fields whose type is still unknown are left out.
    """
    completed = _complete(schema, table_schema)
    return completed if isinstance(completed, t.StructType) else t.StructType()


def _complete(kind: t.DataType, table_type: t.DataType | None) -> t.DataType | None:
    match kind:
        case t.NullType():
            return table_type
        case t.ArrayType(elementType=element):
            former = table_type.elementType if isinstance(table_type, t.ArrayType) else None
            items = _complete(element, former)
            return None if items is None else t.ArrayType(items)
        case t.MapType(keyType=key, valueType=value):
            same = table_type if isinstance(table_type, t.MapType) else None
            keys = _complete(key, same.keyType if same else None)
            values = _complete(value, same.valueType if same else None)
            return None if keys is None or values is None else t.MapType(keys, values)
        case t.StructType(fields=fields):
            same_fields = table_type.fields if isinstance(table_type, t.StructType) else []
            types = {field.name: field.dataType for field in same_fields}
            pairs = [(field, _complete(field.dataType, types.get(field.name))) for field in fields]
            return _struct_of(pairs)
    return kind


def _struct_of(fields: Iterable[tuple[t.StructField, t.DataType | None]]) -> t.StructType | None:
    typed = [
        t.StructField(field.name, kind, True, field.metadata)
        for field, kind in fields
        if kind is not None
    ]
    return t.StructType(typed) if typed else None


def _spark_struct(fields: Sequence[tuple[str, pa.DataType]], path: str) -> t.StructType:
    names: dict[str, str] = {}
    for name, _ in fields:
        other = names.setdefault(name.casefold(), name)
        if names[name.casefold()] is not name:
            raise ConfigError(
                f"the columns {_join(path, other)!r} and {_join(path, name)!r} have the same name in a "
                "table, which does not distinguish case",
                guidance="rename one of them",
            )
    return t.StructType(
        [t.StructField(name, _spark_type(kind, _join(path, name))) for name, kind in fields]
    )


def _spark_type(kind: pa.DataType, column: str) -> t.DataType:
    if _types.is_dictionary(kind):
        return _spark_type(kind.value_type, column)
    if isinstance(kind, pa.BaseExtensionType) and kind.extension_name == _JSON:
        return t.StringType()
    if _types.is_timestamp(kind):
        return t.TimestampNTZType() if kind.tz is None else t.TimestampType()
    if _types.is_decimal(kind) and 0 <= kind.scale <= kind.precision <= _MAX_PRECISION:
        return t.DecimalType(kind.precision, kind.scale)
    if any(is_list(kind) for is_list in _LISTS):
        return t.ArrayType(_spark_type(kind.value_type, f"{column}[]"))
    if _types.is_map(kind):
        keys = _spark_type(kind.key_type, f"{column}{{key}}")
        return t.MapType(keys, _spark_type(kind.item_type, f"{column}{{value}}"))
    if _types.is_struct(kind):
        fields = [kind.field(number) for number in range(kind.num_fields)]
        return _spark_struct([(field.name, field.type) for field in fields], column)
    for is_kind, spark_type in _SCALARS:
        if is_kind(kind):
            return spark_type
    raise ConfigError(
        f"the column {column!r} has the type {kind}, which no column of a table can have",
        guidance="cast it: times and durations to text or a number, decimals to at most "
        f"{_MAX_PRECISION} digits",
    )


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
