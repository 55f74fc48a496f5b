"""The columns of a block: from what pyarrow has parsed, or from values as they stand in the lines.

Where a value is not provably the same as the exact parse would return, its row is named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from elt_assets.lake.spark.parsing.job import ARRAY, RAW, STRUCT, UNREAD, Field
from elt_assets.lake.spark.parsing.lines import attribute, is_text
from elt_assets.lake.spark.parsing.values import FORMS, Bad, RawValues, checked

_PARSED = {
    "BOOLEAN": pa.bool_(),
    "INTEGER": pa.int64(),
    "NUMBER": pa.float64(),
    "INTEGER_IN_DOUBLE": pa.float64(),
}
"""Types that pyarrow parses; all other scalars are parsed as text."""
_CHECKED = frozenset({"NUMBER", "INTEGER_IN_DOUBLE", "BINARY", *FORMS})


def parsed_type(each: Field, wants: Callable[[str], bool]) -> pa.DataType:
    """Return the type of a field for pyarrow's JSON reader.

    Args:
        wants: whether a nested field with this name is declared.
    """
    if each.kind == ARRAY:
        return pa.list_(parsed_type(each.inner[0], wants))
    if each.kind == STRUCT:
        return pa.struct(parsed_fields(each.inner, wants))
    return _PARSED.get(each.kind, pa.string())


def parsed_fields(fields: Sequence[Field], wants: Callable[[str], bool]) -> list[pa.Field]:
    """Return the fields of an object for pyarrow's JSON reader."""
    known = (each for each in fields if each.kind != UNREAD and wants(each.source))
    return [pa.field(each.source, parsed_type(each, wants)) for each in known]


def is_same(each: Field) -> bool:
    """Return whether what pyarrow parses is the column, without a check."""
    if each.kind == UNREAD or each.kind in _CHECKED:
        return False
    if each.kind == STRUCT:
        return all(inner.source == inner.name and is_same(inner) for inner in each.inner)
    return all(is_same(inner) for inner in each.inner)


class Nulls:
    """Arrays of nulls. Those of one type share their memory."""

    def __init__(self) -> None:
        self._arrays: dict[tuple[pa.DataType, int], pa.Array] = {}
        self._rows = -1

    def array(self, type_: pa.DataType, rows: int) -> pa.Array:
        if rows != self._rows:
            self._arrays, self._rows = {}, rows
        found = self._arrays.get((type_, rows))
        if found is None:
            found = self._arrays[type_, rows] = pa.nulls(rows, type_)
        return found


class Columns:
    """Makes the columns of one part's blocks."""

    def __init__(self) -> None:
        self._raw = RawValues()
        self.nulls = Nulls()

    def from_parsed(self, each: Field, values: Any, bad: Bad) -> Any:
        """Return a column from the array that pyarrow has parsed for it."""
        if is_same(each) and values.type == each.type:
            return values
        if each.kind == STRUCT:
            return self._struct(each, values, bad)
        if each.kind == ARRAY:
            parents = lambda found: bad(_parents(values, found))  # noqa: E731
            items = self.from_parsed(each.inner[0], values.values, parents)
            return pa.ListArray.from_arrays(
                values.offsets, items, type=each.type, mask=values.is_null()
            )
        return checked(values, each.kind, each.type, bad)

    def _struct(self, each: Field, values: Any, bad: Bad) -> Any:
        children = []
        for inner in each.inner:
            index = values.type.get_field_index(inner.source) if inner.kind != UNREAD else -1
            if index < 0:
                children.append(self.nulls.array(inner.type, len(values)))
            else:
                children.append(self.from_parsed(inner, values.field(index), bad))
        return pa.StructArray.from_arrays(children, fields=list(each.type), mask=values.is_null())

    def from_objects(self, each: Field, values: Sequence[Any], bad: Bad) -> Any:
        """Return a column from values of decoded lines (see `lines.LineReader`).

        Raises:
            pa.ArrowInvalid: a value does not have the declared type.
        """
        if each.kind == UNREAD:
            return self.nulls.array(each.type, len(values))
        if each.kind == STRUCT:
            return self._struct_of_objects(each, values, bad)
        if not is_text(each):
            return self._list_of_objects(each, values, bad)
        raw = [None if value is None else bytes(value) for value in values]
        if each.kind in RAW:
            return self._raw.array(raw, each.kind, each.type, bad)
        return self.from_parsed(each, _parsed(each, raw), bad)

    def _struct_of_objects(self, each: Field, values: Sequence[Any], bad: Bad) -> Any:
        children = []
        for number, inner in enumerate(each.inner):
            if inner.kind == UNREAD:
                children.append(self.nulls.array(inner.type, len(values)))
                continue
            name = attribute(number)
            own = [None if value is None else getattr(value, name) for value in values]
            children.append(self.from_objects(inner, own, bad))
        mask = pa.array([value is None for value in values], pa.bool_())
        return pa.StructArray.from_arrays(children, fields=list(each.type), mask=mask)

    def _list_of_objects(self, each: Field, values: Sequence[Any], bad: Bad) -> Any:
        sizes = [0 if value is None else len(value) for value in values]
        owners = np.repeat(np.arange(len(values)), sizes)
        flat = [item for value in values if value is not None for item in value]
        parents = lambda found: bad(owners[list(found)].tolist())  # noqa: E731
        items = self.from_objects(each.inner[0], flat, parents)
        offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())
        mask = pa.array([value is None for value in values], pa.bool_())
        return pa.ListArray.from_arrays(offsets, items, type=each.type, mask=mask)


def _parents(values: Any, found: Any) -> list[int]:
    """Return the positions of the lists that contain some elements, given by their positions."""
    positions = list(found)
    if not positions:
        return []
    return list(pc.list_parent_indices(values).take(pa.array(positions)).to_pylist())


def _parsed(each: Field, raw: Sequence[bytes | None]) -> Any:
    """Return values, given as they stand in their lines, as pyarrow parses them."""
    schema = pa.schema([pa.field("v", parsed_type(each, lambda _: True))])
    if not raw:
        return pa.array([], schema.field(0).type)
    block = b"".join(b'{"v":%b}\n' % (b"null" if value is None else value) for value in raw)
    return read_block(block, pj.ParseOptions(explicit_schema=schema)).column(0).chunk(0)


def read_block(block: bytes, options: pj.ParseOptions) -> pa.Table:
    """Parse a block in one piece.

    Raises:
        pa.ArrowInvalid: a value does not have the declared type, or the block is not JSON.
    """
    whole = pj.ReadOptions(use_threads=False, block_size=max(len(block), 1 << 16) + 16)
    return pj.read_json(pa.BufferReader(block), read_options=whole, parse_options=options)
