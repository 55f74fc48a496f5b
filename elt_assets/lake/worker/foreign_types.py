"""Conversion of the values of a Parquet file to the types of its table, without a change of any value.

It is done in Spark's workers by each task that reads a file, and in this process by `read.scans`, for the
frames of assets by `write.frames`, and by `admin.erasure`, which only compares the types of columns.

Delta fixes the types of a table, but not how a file stores them: another engine may write timestamps as
INT96 or in nanoseconds, decimals as integers, lists with large offsets. So every task that reads a file to
write its rows to another one, or to compare them, conforms them first, unless the same sync has written the
file. The values stay equal, or the file is refused: no value is rounded, cut or parsed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_BYTES = (
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    *(pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view),
    pa.types.is_fixed_size_binary,
)
_FAMILIES: Sequence[tuple[Callable[[Any], bool], Sequence[Callable[[Any], bool]]]] = (
    (pa.types.is_integer, [pa.types.is_integer]),
    (pa.types.is_floating, [pa.types.is_floating, pa.types.is_integer]),
    (pa.types.is_decimal, [pa.types.is_decimal, pa.types.is_integer]),
    (pa.types.is_timestamp, [pa.types.is_timestamp]),
    (pa.types.is_date, [pa.types.is_date]),
    (pa.types.is_string, _BYTES),
    (pa.types.is_binary, _BYTES),
)
"""Types of a table, each with the types of a file whose values mean the same."""
_LISTS = (
    *(pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list),
    *(pa.types.is_list_view, pa.types.is_large_list_view),
)
_JULIAN = frozenset({b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"})
"""Properties of a file in which Spark has stored days before 1582 as those of the Julian calendar."""
_UNITS = ("ms", "us", "ns")


def open_file(source: Any, *, pre_buffer: bool = False) -> pq.ParquetFile:
    """Open a Parquet file whose timestamps of the type INT96 are read in microseconds.

    Raises:
        ArrowInvalid: a value of that type is no whole number of microseconds, or is out of their range; or
            the dates of the file are those of the Julian calendar, which Arrow does not convert.
    """
    file = pq.ParquetFile(source, coerce_int96_timestamp_unit="us", pre_buffer=pre_buffer)
    julian = _JULIAN.intersection(file.metadata.metadata or {})
    if julian:
        raise pa.ArrowInvalid(
            f"Spark wrote it with the former calendar ({min(julian).decode()}); write the table again with "
            "spark.sql.parquet.datetimeRebaseModeInWrite=CORRECTED"
        )
    columns = range(len(file.schema.names))
    if any(file.schema.column(number).physical_type == "INT96" for number in columns):
        _refuse_inexact(source)
    return file


def conform_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows of a file in the types of its table, in the table's order.

    A column that the file lacks stays absent, and one that the table lacks stays as it is, at the end.

    Raises:
        ArrowInvalid: a column has another kind of type, or a value does not fit; it names the column.
    """
    file_names = set(batch.schema.names)
    names = [name for name in schema.names if name in file_names]
    names += [name for name in batch.schema.names if name not in set(schema.names)]
    columns = [
        conform(batch.column(name), schema.field(name).type, name)
        if name in schema.names
        else batch.column(name)
        for name in names
    ]
    return pa.RecordBatch.from_arrays(columns, names=names)


def conform(values: Any, kind: pa.DataType, column: str) -> Any:
    """Return the values of a column in another type, without a change of their value.

    A nested field that they lack is null.

    Raises:
        ArrowInvalid: the type is of another kind, or a value does not fit.
    """
    if values.type == kind:
        return values
    if isinstance(values, pa.ChunkedArray):
        chunks = [conform(chunk, kind, column) for chunk in values.chunks]
        return pa.chunked_array(chunks, type=kind)
    if isinstance(values, pa.ExtensionArray):
        return conform(values.storage, kind, column)
    if pa.types.is_dictionary(values.type):
        return conform(values.dictionary_decode(), kind, column)
    return _conform_nested(values, kind, column)


def _conform_nested(values: Any, kind: pa.DataType, column: str) -> Any:
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), kind)
    if pa.types.is_struct(kind) and pa.types.is_struct(values.type):
        file_names = {values.type.field(number).name for number in range(values.type.num_fields)}
        fields = [kind.field(number) for number in range(kind.num_fields)]
        columns = [
            conform(pc.struct_field(values, field.name), field.type, f"{column}.{field.name}")
            if field.name in file_names
            else pa.nulls(len(values), field.type)
            for field in fields
        ]
        return pa.StructArray.from_arrays(columns, fields=fields, mask=values.is_null())
    if pa.types.is_list(kind) and any(test(values.type) for test in _LISTS):
        return replace_items(
            values, conform(values.flatten(), kind.value_type, f"{column}[]"), kind
        )
    if pa.types.is_map(kind) and pa.types.is_map(values.type):
        keys = conform(values.keys, kind.key_type, f"{column}{{key}}")
        items = conform(values.items, kind.item_type, f"{column}{{value}}")
        starts = pc.add(values.offsets, 0)  # a copy: a mask is not possible with a part of an array
        return pa.MapArray.from_arrays(starts, keys, items, type=kind, mask=values.is_null())
    return _cast(values, kind, column)


def replace_items(values: Any, items: Any, kind: pa.DataType) -> Any:
    """Return a column of lists with other items in the place of those that `flatten` returns."""
    ends = pc.cumulative_sum(pc.fill_null(pc.list_value_length(values), 0).cast(pa.int64()))
    starts = pa.concat_arrays([pa.array([0], pa.int32()), ends.cast(pa.int32())])
    return pa.ListArray.from_arrays(starts, items, type=kind, mask=values.is_null())


def _cast(values: Any, kind: pa.DataType, column: str) -> Any:
    types = f"its column {column} has the type {values.type}, and the table's has the type {kind}"
    sources = [family for is_kind, family in _FAMILIES if is_kind(kind)]
    if not any(test(values.type) for family in sources for test in family):
        raise pa.ArrowInvalid(types)
    try:
        converted = values.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise pa.ArrowInvalid(f"{types}; a value does not fit: {error}") from error
    if pa.types.is_floating(values.type) and not _are_equal(converted, values):
        raise pa.ArrowInvalid(f"{types}; a value does not fit: it would be rounded")
    return converted


def _are_equal(left: Any, right: Any) -> bool:
    left, right = (
        values.cast(pa.float64()) for values in (left, right)
    )  # Arrow compares no half floats
    same = pc.or_(pc.equal(left, right), pc.and_(pc.is_nan(left), pc.is_nan(right)))
    return bool(pc.all(pc.fill_null(same, True), min_count=0).as_py())


def _refuse_inexact(source: Any) -> None:
    """Refuse INT96 timestamps that are no whole microseconds, or not in the range of these.

    Arrow cuts the rest, and calculates modulo 2^64. So the values are read in three units. Milliseconds are
    always in range, and show whether microseconds are. Nanoseconds show the rest, also modulo 2^64.

    Raises:
        ArrowInvalid: names the column.
    """
    files = [pq.ParquetFile(source, coerce_int96_timestamp_unit=unit) for unit in _UNITS]
    coarse, _, fine = (file.schema_arrow for file in files)
    names = [field.name for field in fine if coarse.field(field.name).type != field.type]
    for group in range(files[0].num_row_groups):
        tables = [file.read_row_group(group, columns=names) for file in files]
        for name in names:
            units = zip(*(_instants(table[name]) for table in tables), strict=True)
            if not all(_are_whole(*leaves) for leaves in units):
                raise pa.ArrowInvalid(
                    f"its column {name} has the type INT96, and a value does not fit into microseconds"
                )


def _are_whole(ms: Any, us: Any, ns: Any) -> bool:
    if ms.type == ns.type:
        return True
    ms, us, ns = (values.cast(pa.int64()) for values in (ms, us, ns))
    is_in_range = pc.less(pc.abs(ms), 2**63 // 1000)
    is_whole = pc.and_(is_in_range, pc.equal(ns, pc.multiply(us, 1000)))
    return bool(pc.all(is_whole, min_count=0).as_py())


def _instants(values: Any) -> Iterator[Any]:
    """Yield the timestamps of a column, at every depth."""
    if isinstance(values, pa.ChunkedArray):
        for chunk in values.chunks:
            yield from _instants(chunk)
    elif pa.types.is_struct(values.type):
        for field in values.flatten():
            yield from _instants(field)
    elif pa.types.is_map(values.type):
        yield from _instants(values.keys)
        yield from _instants(values.items)
    elif pa.types.is_list(values.type):
        yield from _instants(values.flatten())
    elif pa.types.is_timestamp(values.type):
        yield values
