"""The order and the equality of values in Arrow, as Spark has them: for merges by key.

Used by `row_order`, and by `unchanged` for the equality of whole rows.

Spark has an order of all values of a type: NaN is greater than any number and equal to itself, -0.0 is equal
to 0.0, a null is less than any value, a structure is ordered by its fields, and bytes are numbers without a
sign. Arrow sorts most types in that order; the others get columns that Arrow sorts so (`sort_columns`).

Test: `tests/lake/test_key_merge.py::test_all_ways_give_the_same_rows`
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_WITHOUT_SIGN = np.int64((1 << 63) - 1)


def sort_columns(values: Any) -> list[Any]:
    """Return columns that Arrow sorts as Spark sorts some values, and that are equal where the values are.

    Lists and maps, which can only be keys, are equal where their values are, but are in another order.
    """
    values = whole(values)
    if pa.types.is_floating(values.type):
        return [_number_bits(values)]
    if pa.types.is_struct(values.type):
        fields = (pc.struct_field(values, [n]) for n in range(values.type.num_fields))
        return [
            pc.is_valid(values),
            *(column for field in fields for column in sort_columns(field)),
        ]
    if pa.types.is_nested(values.type):
        texts = [None if value is None else repr(_plain(value)) for value in values.to_pylist()]
        return [pa.array(texts, pa.string())]
    return [values]


def _number_bits(values: Any) -> Any:
    """Return integers in the order of numbers: the bits of a number, turned around if it is negative."""
    numbers = pc.add(values.cast(pa.float64()), 0.0)  # -0.0 becomes 0.0
    bits = to_numpy(pc.if_else(pc.is_nan(numbers), float("nan"), numbers)).view(np.int64)
    return pa.array(np.where(bits < 0, bits ^ _WITHOUT_SIGN, bits), mask=to_numpy(values.is_null()))


def _plain(value: Any) -> Any:
    """Return a value in which equal numbers are written in one way."""
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value


def sort_indices(
    columns: Sequence[Any], orders: Sequence[str] = (), nulls: str = "at_start"
) -> Any:
    """Return the positions of the rows in the order of some columns; default: each ascending."""
    names = [str(number) for number in range(len(columns))]
    keys = list(zip(names, orders or ["ascending"] * len(names), strict=True))
    with warnings.catch_warnings():
        # Newer versions of pyarrow want the place of nulls for each key, which 25 cannot.
        warnings.simplefilter("ignore", FutureWarning)
        return pc.sort_indices(
            pa.table(list(columns), names=names), sort_keys=keys, null_placement=nulls
        )


def find_repeats(columns: Sequence[Any], *, is_exact: bool = False) -> Any:
    """Return for each row whether it has the same values as the row before (see `compare_values`)."""
    rows = len(columns[0])
    if not rows:
        return pa.array([], pa.bool_())
    pairs = ((column.slice(0, rows - 1), column.slice(1)) for column in map(whole, columns))
    repeats = reduce(pc.and_, (compare_values(*pair, is_exact=is_exact) for pair in pairs))
    return pa.concat_arrays([pa.array([False]), repeats])


def compare_values(left: Any, right: Any, *, is_exact: bool = False) -> Any:
    """Return whether values are equal; nulls are, and NaN are.

    Args:
        is_exact: -0.0 is not 0.0.
    """
    kind = left.type
    if pa.types.is_null(kind):
        return pa.repeat(True, len(left))
    if pa.types.is_struct(kind):
        fields = range(kind.num_fields)
        parts = (
            compare_values(
                pc.struct_field(left, [n]), pc.struct_field(right, [n]), is_exact=is_exact
            )
            for n in fields
        )
        return reduce(pc.and_, parts, pc.equal(pc.is_valid(left), pc.is_valid(right)))
    if pa.types.is_nested(kind):
        return _is_same_list(left, right, is_exact=is_exact)
    equal = pc.equal(left, right)
    if pa.types.is_floating(kind):
        if is_exact:
            bits = pa.int64() if kind.bit_width == 64 else pa.int32()
            equal = pc.and_(equal, pc.equal(left.view(bits), right.view(bits)))
        equal = pc.or_(equal, pc.and_(pc.is_nan(left), pc.is_nan(right)))
    if not left.null_count and not right.null_count:
        return equal
    return pc.coalesce(equal, pc.and_(pc.is_null(left), pc.is_null(right)))


def _is_same_list(left: Any, right: Any, *, is_exact: bool) -> Any:
    """Return whether lists, or maps, have the same items in the same order."""
    left, right = _as_list(left), _as_list(right)
    sizes = to_numpy(pc.list_value_length(left))
    is_same = sizes == to_numpy(pc.list_value_length(right))
    is_same &= to_numpy(left.is_valid()) == to_numpy(right.is_valid())
    selection = pa.array(is_same)
    items = compare_values(
        left.filter(selection).flatten(), right.filter(selection).flatten(), is_exact=is_exact
    )
    differences = np.append(0, np.cumsum(~to_numpy(items)))
    ends = np.cumsum(sizes[is_same])
    is_same[is_same] = differences[ends] == differences[ends - sizes[is_same]]
    return pa.array(is_same)


def _as_list(values: Any) -> Any:
    if not pa.types.is_map(values.type):
        return values
    kind = pa.struct([("key", values.type.key_type), ("value", values.type.item_type)])
    return values.cast(pa.list_(kind))


def whole(column: Any) -> Any:
    """Return a column in one piece."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    piece = column.combine_chunks()
    return piece if isinstance(piece, pa.Array) else pa.concat_arrays(piece.chunks)


def to_numpy(values: Any) -> np.ndarray:
    """Return values as numpy's; a null is 0 or False."""
    values = whole(values)
    if values.null_count:
        values = pc.fill_null(values, pa.scalar(0).cast(values.type))
    numbers: np.ndarray = values.to_numpy(zero_copy_only=False)
    return numbers
