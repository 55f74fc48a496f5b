"""Which text is which value of a type, on each path to a column: one table, in `column_values.json`.

A row has the name of a type, a text, and the value that a record has on all paths; null, with a change, where
the text is no value of the type. What a path gives differently stands beside it. The paths are: `driver`, for
Python's values of a driver of the DB-API; `server`, for texts of a server; `log`, for texts of PostgreSQL's
log, in which a text that is no value and no special one is an error; `csv`, for texts of files, where such a
text is a misfit.
"""

from __future__ import annotations

import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from connectors.postgres.catalog import Column
from connectors.postgres.dialect import Kind
from connectors.postgres.log.values import convert_texts
from connectors.sdk.arrow_records import changes_of, page_of
from connectors.sdk.columns.conversion import Converted, convert, make_batch
from connectors.sdk.columns.types import BIG_DECIMAL, BIG_INTEGER, INT64, ColumnType, decimal128
from connectors.sdk.encoding import encode
from connectors.sdk.files.schema import TYPES
from connectors.sdk.files.texts import cast_texts
from connectors.sql.values import convert_values

TABLE = json.loads(Path(__file__).with_name("column_values.json").read_text(), parse_float=Decimal)
SPECIAL = ("NaN", "Infinity", "-Infinity", "infinity", "10000-01-01")
"""Texts of PostgreSQL for values that a column of the lake does not have."""


def ask_nobody(_: str) -> list[dict[str, Any]]:
    raise AssertionError("no text of these types is converted by the server")


def read_driver(text: str, name: str) -> Converted:
    return convert_values([text, None], TYPES[name])


def read_server(text: str, name: str) -> Converted:
    return convert(pa.array([text.encode(), None]), TYPES[name])


def read_log(text: str, name: str) -> Converted:
    kind = TYPES[name]
    column = Column("c", kind, "c", kind=Kind(kind), declared=name)
    try:
        values, nulled = convert_texts(pa.array([text, None]), column, 0, ask_nobody)
    except ValueError:
        assert text not in SPECIAL
        return read_server("no value", name)
    assert nulled is None or text in SPECIAL
    return values, nulled


def read_csv(text: str, name: str) -> Converted:
    values, misfits = cast_texts(pa.array([text, None]), name, [""])
    if misfits is None:
        return values, None
    return pa.array([None, None], values.type), misfits


PATHS = {"driver": read_driver, "server": read_server, "log": read_log, "csv": read_csv}


@pytest.mark.parametrize("path", list(PATHS))
def test_a_text_is_the_same_value_on_each_path(path: str) -> None:
    for name, text, expected, *different in TABLE:
        batch = make_batch(["c"], [PATHS[path](text, name)])
        page = page_of(batch, {"properties": {"c": TYPES[name].describe()}})
        record, missing = page.records
        value = json.loads(encode(record["c"]), parse_float=Decimal)
        assert value == (different[0].get(path, expected) if different else expected), (name, text)
        assert type(value) is not str or name not in ("integer", "number", "boolean")
        assert (value is None and not (path == "csv" and text == "")) == (0 in changes_of(batch))
        assert missing == {"c": None} and 1 not in changes_of(batch)


def test_decimals_are_numbers_where_the_lake_has_room_for_all_of_them() -> None:
    declared = {(9, 2): (9, 2), (5, -2): (7, 0), (2, 4): (4, 4), (38, 0): (38, 0), (38, 9): (38, 9)}
    for size, stored in declared.items():
        column_type = decimal128(*size)
        assert column_type is not None and (column_type.digits, column_type.places) == stored
    for digits, places in [(None, None), (0, 0), (39, 0), (38, 10), (39, 9), (37, -2), (10, 10)]:
        assert decimal128(digits, places) is None


NUMBERS = st.one_of(
    st.integers().map(str),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.from_regex(r"-?[0-9]{1,60}(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,3})?", fullmatch=True),
    st.from_regex(r"0[xX][0-9a-fA-F]{1,16}", fullmatch=True),
)


@given(st.lists(NUMBERS, max_size=8), st.sampled_from([INT64, BIG_INTEGER, BIG_DECIMAL]))
@example([str(2**128 + 5), "12"], BIG_INTEGER)
@example(["1e-339", "463575856543877190658545929477244422"], BIG_DECIMAL)
@example(["0x1F"], INT64)
def test_a_number_of_a_text_has_the_digits_of_the_text(texts: list[str], kind: ColumnType) -> None:
    """Pyarrow's cast to decimals gives other digits where there are too many, and takes hexadecimal ones."""
    values, nulled = convert(pa.array(texts, pa.string()), kind)
    for number, (text, value) in enumerate(zip(texts, values.to_pylist(), strict=True)):
        if value is None:
            assert nulled is not None and nulled[number].as_py()
        else:
            assert "x" not in text.lower() and Decimal(text) == value


def test_sources_of_databases_start_without_arrow() -> None:
    """A `spec` takes no longer than it must: numpy and pyarrow are imported with the first rows."""
    names = "connectors.postgres, connectors.mysql.source, connectors.sql"
    program = f"import sys, {names}; print(*{{'numpy', 'pyarrow'}} & {{*sys.modules}})"
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert process.stdout.split() == []
