"""Lines that pyarrow will refuse are found by what it has refused before."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.json as pj
import pytest

from elt_assets.lake.spark.parsing.refusals import Refusals, without

LINES = 200


def block(values: dict[int, str], *, field: str = '"i":', lines: int = LINES) -> bytes:
    """A block of lines with an integer `i`, and other values in some of them."""
    return b"".join(
        b'{"s":"a",%s%s}\n' % (field.encode(), values.get(n, str(n)).encode()) for n in range(lines)
    )


def error_of(data: bytes) -> str:
    """The message of the error with which pyarrow refuses a block."""
    schema = pa.schema([("s", pa.string()), ("i", pa.int64())])
    with pytest.raises(pa.ArrowInvalid) as raised:
        pj.read_json(io.BytesIO(data), parse_options=pj.ParseOptions(explicit_schema=schema))
    return str(raised.value)


@pytest.mark.parametrize("field", ['"i":', '"i": ', '"i"  :\t'])
@pytest.mark.parametrize("value", ['"x"', "[1]", '{"a": 1}', "true"])
def test_lines_with_such_a_value_are_found_with_the_one_that_the_error_names(
    field: str, value: str
) -> None:
    data = block({7: value, 150: value}, field=field)
    refusals = Refusals()
    assert refusals.rows(data).tolist() == []
    assert refusals.rows_of_error(data, error_of(data)).tolist() == [7, 150]
    later = block({0: value, 199: value}, field=field)
    assert refusals.rows(later).tolist() == [0, 199]
    assert refusals.rows(block({}, field=field)).tolist() == []


def test_each_kind_of_value_that_was_refused_is_found() -> None:
    data, refusals = block({3: '"x"', 5: "[1]", 9: "{}"}), Refusals()
    for _ in range(3):
        rest = without(data, refusals.rows(data))
        refusals.rows_of_error(rest, error_of(rest))
    assert refusals.rows(data).tolist() == [3, 5, 9]


def test_a_value_in_many_lines_tells_nothing_and_is_forgotten() -> None:
    many = block(dict.fromkeys(range(0, LINES, 10), '"x"'))
    refusals = Refusals()
    assert refusals.rows_of_error(many, error_of(many)).tolist() == []
    assert refusals.rows(block({1: '"x"'})).tolist() == []
    few = block({1: '"x"'})
    assert refusals.rows_of_error(few, error_of(few)).tolist() == [1]
    assert refusals.rows(many).tolist() == []
    assert refusals.rows(few).tolist() == []


@pytest.mark.parametrize(
    ("error", "rows"),
    [
        ("JSON parse error: Column() was specified twice in row 4", [4]),
        ("JSON parse error: Invalid value. in row 199", [199]),
        ("JSON parse error: Invalid value. in row 200", []),
        ("JSON conversion to int64 failed", []),
        ("", []),
    ],
)
def test_only_the_line_that_an_error_without_a_field_names_is_found(
    error: str, rows: list[int]
) -> None:
    refusals = Refusals()
    assert refusals.rows_of_error(block({}), error).tolist() == rows
    assert refusals.rows(block({})).tolist() == []


@pytest.mark.parametrize("rows", [[], [0], [199], [0, 1, 2], [5, 100, 199], list(range(LINES))])
def test_a_block_is_cut_at_lines(rows: list[int]) -> None:
    lines = block({}).splitlines(keepends=True)
    rest = [line for number, line in enumerate(lines) if number not in rows]
    assert without(block({}), np.array(rows, int)) == b"".join(rest)
