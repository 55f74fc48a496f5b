"""Files with any contents: each value arrives as it stands, whatever blocks and parts cut the file."""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from connectors.files import Files
from connectors.files.config import FilesConfig
from connectors.sdk.arrow_records import page_of
from connectors.sdk.encoding import encode
from connectors.sdk.files.formats import json_lines
from connectors.sdk.files.formats.delimited import Delimited
from connectors.sdk.files.formats.file_format import FileFormat
from connectors.sdk.files.formats.parquet import Parquet
from connectors.sdk.files.globs import parse_glob
from connectors.sdk.files.options import CsvOptions, JsonLinesOptions
from connectors.sdk.files.rows import FileRows
from connectors.sdk.files.texts import cast_texts, json_value
from tests.support.examples import examples

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\ufeff"), max_size=9)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("any")


def read(folder: Path, kind: FileFormat, content: bytes, kinds: dict[str, str]) -> list[Any]:
    (folder / "a").write_bytes(content)
    streams = [{"name": "s", "glob": "a", "format": "csv"}]
    storage = Files().open_storage(
        FilesConfig.model_validate({"location": str(folder), "streams": streams})
    )
    (file,) = storage.list_files([parse_glob("a")])
    rows = FileRows(file, file_columns=False, rejects=True)
    result: list[Any] = []
    for part in kind.split(storage, file):
        for batch in kind.read(storage, rows, part, kinds):
            result += [json.loads(encode(record)) for record in page_of(batch, {}).records]
    return result


@settings(max_examples=examples(100))
@given(
    st.lists(st.tuples(TEXTS, TEXTS, TEXTS), max_size=12),
    st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([",", ";", "\t"]),
    st.sampled_from(["utf-8", "utf-16"]),
)
def test_any_texts_of_csv(
    folder: Path, rows: list[tuple[str, ...]], quoting: Any, end: str, delimiter: str, encoding: str
) -> None:
    if quoting == csv.QUOTE_MINIMAL:  # Python then writes this end of a line without quotes
        rows = [tuple(text.replace("\r", "") for text in row) for row in rows]
    sink = io.StringIO(newline="")
    writer = csv.writer(sink, quoting=quoting, lineterminator=end, delimiter=delimiter)
    writer.writerows([("a", "b", "c"), *rows])
    kind = Delimited(
        CsvOptions.model_validate({"delimiter": delimiter, "encoding": encoding}), "none"
    )
    empty = "" if quoting == csv.QUOTE_ALL else None
    expected = [
        {name: text or empty for name, text in zip("abc", row, strict=True)} for row in rows
    ]
    assert read(folder, kind, sink.getvalue().encode(encoding), {}) == expected


@settings(max_examples=examples(100))
@given(
    st.lists(
        st.one_of(st.dictionaries(TEXTS, st.integers() | TEXTS, max_size=3), st.just("bad")),
        max_size=15,
    ),
    st.sampled_from([b"\n", b"\r\n", b"\n\n"]),
    st.integers(1, 60),
    st.integers(1, 60),
    st.booleans(),
)
def test_any_lines_of_json_in_any_parts(
    folder: Path, values: list[Any], end: bytes, part: int, block: int, has_end: bool
) -> None:
    lines = [b"bad" if value == "bad" else encode(value) for value in values]
    content = end.join(lines) + (end if has_end else b"")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lines, "PART_BYTES", part)
        patch.setattr(json_lines, "_BLOCK", block)
        kind = json_lines.JsonLines(JsonLinesOptions.model_validate({}), "none")
        result = read(folder, kind, content, {})
    numbers = {
        n: n + 1 if len(end) == 1 or end == b"\r\n" else 2 * n + 1 for n in range(len(values))
    }
    expected = [
        [{"file": "a", "line": numbers[n], "text": "bad"}] if value == "bad" else value
        for n, value in enumerate(values)
    ]
    for record in result:
        if isinstance(record, list):
            del record[0]["error"]
    assert result == expected


NUMBERS = st.one_of(
    st.integers(-(10**40), 10**40).map(str),
    st.floats().map(repr),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.from_regex(r"\A[-+]?[0-9.eE]{0,24}\Z"),
    st.sampled_from(["", "nan", "inf", "0x1F", "1_0", " 1", "true", "T", "NO"]),
)
TIMES = st.one_of(
    st.dates().map(str),
    st.datetimes().map(str),
    st.from_regex(r"\A\d{4}-\d\d-\d\d[T ]\d\d:\d\d(Z|\+01)?\Z"),
)


@settings(max_examples=examples(200))
@example(["463575856543877190658545929477244422"], "decimal")  # pyarrow's cast overflows
@given(
    st.lists(NUMBERS | TIMES, max_size=20),
    st.sampled_from(
        ["integer", "number", "boolean", "decimal", "big_integer", "date", "timestamp"]
    ),
)
def test_a_cast_and_a_record_give_the_same_value(texts: list[str], kind: str) -> None:
    values, misfits = cast_texts(pa.array(texts, pa.string()), kind, [""])
    batch = pa.RecordBatch.from_arrays([values], names=["v"])
    for row, record in enumerate(page_of(batch, {}).records):
        if misfits is not None and misfits[row].as_py():
            continue
        value = json_value(texts[row], kind, [""])
        if kind in ("date", "timestamp"):
            assert (record["v"] is None) == (value is None)
            assert value is None or record["v"].startswith(texts[row][:4]) or kind == "timestamp"
        else:
            exact: Any = float if kind == "number" else Decimal
            typed, text = (json.loads(encode(v), parse_float=exact) for v in (record["v"], value))
            if kind == "number" and text is not None:
                text = float(text)  # the shortest text of a double stands for it
            assert typed == text and isinstance(typed, bool) == isinstance(text, bool)


class Kind(NamedTuple):
    """A type of Arrow, its values, and what they are in JSON."""

    type: pa.DataType
    values: st.SearchStrategy[Any]
    to_json: Callable[[Any], Any]


def _return_value(value: Any) -> Any:
    return value


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _optional(kind: Kind) -> tuple[st.SearchStrategy[Any], Callable[[Any], Any]]:
    return st.none() | kind.values, lambda value: None if value is None else kind.to_json(value)


LEAVES = [
    Kind(pa.int32(), st.integers(-(2**31), 2**31 - 1), _return_value),
    Kind(pa.bool_(), st.booleans(), _return_value),
    Kind(pa.large_string(), TEXTS, _return_value),
    Kind(pa.large_binary(), st.binary(max_size=3), _base64),
    Kind(pa.date32(), st.dates(), str),
]
LISTS = [pa.list_, pa.large_list, pa.list_view, pa.large_list_view]


def _list_of(make: Callable[[pa.DataType], pa.DataType], kind: Kind) -> Kind:
    items, to_json = _optional(kind)
    return Kind(make(kind.type), st.lists(items, max_size=3), lambda value: [*map(to_json, value)])


def _map_of(key: Kind, kind: Kind) -> Kind:
    items, to_json = _optional(kind)

    def _name(value: Any) -> str:
        text = key.to_json(value)
        return text if isinstance(text, str) else json.dumps(text)

    entries = st.dictionaries(key.values, items, max_size=3).map(lambda value: [*value.items()])
    return Kind(
        pa.map_(key.type, kind.type),
        entries,
        lambda value: {_name(name): to_json(item) for name, item in value},
    )


def _struct_of(kind: Kind) -> Kind:
    items, to_json = _optional(kind)
    return Kind(
        pa.struct([("a", kind.type)]),
        st.fixed_dictionaries({"a": items}),
        lambda value: {"a": to_json(value["a"])},
    )


def _make_nested(kinds: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
    return st.one_of(
        st.builds(_list_of, st.sampled_from(LISTS), kinds),
        st.builds(_map_of, st.sampled_from(LEAVES), kinds),
        st.builds(_struct_of, kinds),
    )


@settings(max_examples=examples(100))
@given(
    st.recursive(_make_nested(st.sampled_from(LEAVES)), _make_nested, max_leaves=3).flatmap(
        lambda kind: st.tuples(st.just(kind), st.lists(_optional(kind)[0], max_size=6))
    ),
    st.integers(1, 3),
)
def test_any_nested_values_of_parquet(
    folder: Path, column: tuple[Kind, list[Any]], group: int
) -> None:
    kind, values = column
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, pa.schema({"v": kind.type})) as writer:
        for start in range(0, len(values), group):
            rows = pa.array(values[start : start + group], kind.type)
            writer.write_table(pa.table({"v": rows}))
    texts = [record["v"] for record in read(folder, Parquet(), sink.getvalue(), {})]
    to_json = _optional(kind)[1]
    assert [None if text is None else json.loads(text) for text in texts] == [*map(to_json, values)]
