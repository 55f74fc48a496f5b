"""The formats and their options: each read is also done by slices, which give the same records."""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
import json
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from connectors.files import Files
from connectors.sdk.files import options as files_config
from connectors.sdk.files.formats import json_lines, parquet
from tests.connectors.files.support import Reader
from tests.connectors.support import Json, output_of, records


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


def reader(data: Path, kind: str, glob: str = "*", **stream: Any) -> Reader:
    streams = [{"name": "s", "glob": glob, "format": kind, **stream}]
    return Reader(data.parent, streams, str(data))


def test_values_of_csv_get_types(data: Path) -> None:
    (data / "a.csv").write_text(
        "id,code,price,rate,big,long,flag,day,at,local,note,none\n"
        "1,007,1.50,0.1,12345678901234567890,0.8474337369372327,true,2024-02-29,2024-01-01T10:00:00Z,"
        '2024-01-01 10:00,"a ""b"", c\nd",\n'
        '2,12,-3,1e3,1,2,FALSE,2024-03-01,2024-01-01 10:00:00.5+01:00,2024-01-01T10:00:01.25,"",\n'
    )
    source = reader(data, "csv")
    kinds = {
        name: (s.get("format"), s.get("airbyte_type"), s["type"][0])
        for name, s in source.properties().items()
    }
    assert kinds == {
        "id": (None, None, "integer"),
        "code": (None, None, "string"),
        "price": (None, None, "number"),
        "rate": (None, None, "number"),
        "big": (None, "big_integer", "integer"),
        "long": (None, None, "number"),
        "flag": (None, None, "boolean"),
        "day": ("date", None, "string"),
        "at": ("date-time", "timestamp_with_timezone", "string"),
        "local": ("date-time", "timestamp_without_timezone", "string"),
        "note": (None, None, "string"),
        "none": (None, None, "string"),
    }
    first, second = source.read()
    assert first == {
        "id": 1,
        "code": "007",
        "price": 1.5,
        "rate": 0.1,
        "big": 12345678901234567890,
        "long": 0.8474337369372327,
        "flag": True,
        "day": "2024-02-29",
        "at": "2024-01-01T10:00:00.000000Z",
        "local": "2024-01-01T10:00:00.000000",
        "note": 'a "b", c\nd',
        "none": None,
    }
    assert second["note"] == "" and second["none"] is None and second["rate"] == 1000
    assert second["at"] == "2024-01-01T09:00:00.500000Z"


def test_a_value_that_does_not_fit_is_sent_as_it_stands(data: Path) -> None:
    lines = [f"{n},{n / 4},2024-01-01" for n in range(300)]
    lines[150] = "x,1.23456789012345678901,never"
    lines[151] = "+5,nan,2024-13-01"
    lines[152] = "0x1F,.5,"
    (data / "a.csv").write_text("i,n,d\n" + "\n".join(lines) + "\n")
    source = reader(data, "csv", columns={"i": "integer", "n": "number", "d": "date"})
    rows = source.read()
    assert [row["i"] for row in rows[148:155]] == [148, 149, "x", 5, "0x1F", 153, 154]
    assert [row["n"] for row in rows[150:153]] == [1.2345678901234568, "nan", 0.5]
    assert [row["d"] for row in rows[150:153]] == ["never", "2024-13-01", None]
    _, output = output_of(
        Files(), data.parent, "read", config=source.config, catalog=source.catalog()
    )
    assert b'"n":1.23456789012345678901' in output  # the lake records that it is cut
    (data / "a.csv").write_text("i\n" + "x\n1\n" * 300)
    assert [row["i"] for row in reader(data, "csv", columns={"i": "integer"}).read()] == [
        "x",
        1,
    ] * 300


def test_options_of_csv(data: Path) -> None:
    (data / "a.csv").write_bytes(
        "# made by a program\n\n'Größe';b\n'x;y\\'';NULL\n€;\n".encode("cp1252")
    )
    options = {"delimiter": ";", "quote": "'", "escape": "\\", "encoding": "cp1252", "skip_rows": 2}
    source = reader(data, "csv", csv={**options, "null_values": ["NULL", ""]})
    assert source.read() == [{"Größe": "x;y'", "b": None}, {"Größe": "€", "b": None}]
    options |= {"columns": ["one", "two"]}
    assert reader(data, "csv", csv=options).read()[0] == {"one": "x;y'", "two": "NULL"}
    options |= {"header": False, "skip_rows": 3}
    assert reader(data, "csv", csv=options).read()[0] == {"one": "x;y'", "two": "NULL"}
    (data / "a.csv").write_bytes(b"\xef\xbb\xbf1\t2\r\n3\t4\r\n")
    tabs = reader(data, "csv", csv={"delimiter": "\t", "header": False, "quote": None})
    assert tabs.read() == [{"column_1": 1, "column_2": 2}, {"column_1": 3, "column_2": 4}]
    (data / "a.csv").write_bytes("a,b\n1,é\n".encode("utf-16"))
    assert reader(data, "csv", csv={"encoding": "utf-16"}).read() == [{"a": 1, "b": "é"}]


def test_headers_that_differ_and_files_without_rows(data: Path) -> None:
    (data / "1.csv").write_text("a,b\n1,2\n")
    (data / "2.csv").write_text("b,c\n3,4\n")
    (data / "3.csv").write_text("")
    (data / "4.csv").write_text("a,b")
    for number in range(1, 5):
        os.utime(data / f"{number}.csv", (number, number))
    source = reader(data, "csv")
    assert list(source.properties()) == ["a", "b", "c"]
    assert source.read() == [{"a": 1, "b": 2}, {"b": 3, "c": 4}]
    # A column that no sampled file has is a text, as far as it is not declared.
    catalog = source.catalog()
    (data / "5.csv").write_text("a,d\n5,6\n")
    assert source.read(catalog=catalog)[-1] == {"a": 5, "d": "6"}


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ('\ufeff"id","a,b","c ""q"""\r\n1,x,y\r\n', [{"id": 1, "a,b": "x", 'c "q"': "y"}]),
        ("\n\nid,x\n1,2\n", [{"id": 1, "x": 2}]),
        ("id,x,\n1,2,\n3,4,\n", [{"id": n, "x": n + 1, "column_3": None} for n in (1, 3)]),
        ("id,x\n1,2\n3,4", [{"id": 1, "x": 2}, {"id": 3, "x": 4}]),
    ],
    ids=[
        "quotes after a mark",
        "empty lines first",
        "delimiters at the ends",
        "no end of the last line",
    ],
)
def test_files_of_csv_begin_and_end_in_several_ways(
    data: Path, text: str, rows: list[Json]
) -> None:
    (data / "a.csv").write_text(text, encoding="utf-8", newline="")
    assert reader(data, "csv").read() == rows


def compress_lz4(content: bytes) -> Any:
    return pa.compress(content, "lz4", asbytes=True)


COMPRESSIONS = [
    ("gz", gzip.compress),
    ("bz2", bz2.compress),
    ("zst", zstandard.compress),
    ("lz4", compress_lz4),
]


@pytest.mark.parametrize(("ending", "compress"), COMPRESSIONS)
def test_compressed_files(data: Path, ending: str, compress: Any) -> None:
    (data / f"a.csv.{ending}").write_bytes(compress(b"a,b\n1,2\n") + compress(b"3,4\n"))
    (data / f"b.jsonl.{ending}").write_bytes(compress(b'{"a": 1}\n') + compress(b'{"a": 2}'))
    assert [row["a"] for row in reader(data, "csv", f"*.csv.{ending}").read()] == [1, 3]
    assert [row["a"] for row in reader(data, "jsonl", f"*.jsonl.{ending}").read()] == [1, 2]
    whole = (data / f"a.csv.{ending}").read_bytes()
    (data / "bad.csv").write_bytes(whole[:-4])
    name = {"gz": "gzip", "zst": "zstd"}.get(ending, ending)
    source = reader(
        data, "csv", "bad.csv", compression=name, columns={"a": "integer"}, sample_files=1
    )
    text = source.fail(catalog=catalog_of(a={"type": "integer"}))
    assert "bad.csv" in text


@pytest.mark.parametrize(("ending", "compress"), COMPRESSIONS)
def test_compressed_files_may_have_many_members(data: Path, ending: str, compress: Any) -> None:
    """Programs that write a log compress each of its lines by itself."""
    for kind, header, row in (("csv", b"a\n", b"%d\n"), ("jsonl", b"", b'{"a": %d}\n')):
        members = [compress(part) for part in (header, *(row % n for n in range(1000)))]
        (data / f"a.{kind}.{ending}").write_bytes(b"".join(members))
        rows = reader(data, kind, f"*.{kind}.{ending}").read()
        assert [row["a"] for row in rows] == [*range(1000)]


def catalog_of(**properties: Json) -> Json:
    stream = {"name": "s", "json_schema": {"type": "object", "properties": properties}}
    modes = {"sync_mode": "incremental", "destination_sync_mode": "append"}
    return {"streams": [{"stream": stream, **modes}]}


def test_json_lines(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        '{"id": 1, "price": 1.10, "big": 123456789012345678901234567890, "o": {"a": [1, 2], "b": null}}',
        "",
        '  {"id": 2, "new": "é\\n", "o": {"a": [], "c": {}}}\r',
        "{}",
    ]
    (data / "a.jsonl").write_text("\ufeff" + "\n".join(lines), newline="")
    source = reader(data, "jsonl")
    assert source.properties() == {
        "id": {"type": ["integer", "null"]},
        "price": {"type": ["number", "null"]},
        "big": {"type": ["integer", "null"], "airbyte_type": "big_integer"},
        "o": {
            "type": ["object", "null"],
            "properties": {
                "a": {"type": ["array", "null"], "items": {"type": ["integer", "null"]}},
                "b": {"type": ["string", "null"]},
                "c": {"type": ["object", "null"]},
            },
        },
        "new": {"type": ["string", "null"]},
    }
    assert source.read() == [json.loads(line) for line in lines if line]
    (data / "a.jsonl").write_bytes('{"a": "é"}\n'.encode("latin-1"))
    assert reader(data, "jsonl", jsonl={"encoding": "latin-1"}).read() == [{"a": "é"}]

    monkeypatch.setattr(json_lines, "PART_BYTES", 100)
    monkeypatch.setattr("connectors.sdk.files.stream._PACK_BYTES", 100)
    monkeypatch.setattr(json_lines, "_BLOCK", 37)
    texts = [json.dumps({"n": n, "text": "x" * (n % 50)}) for n in range(100)]
    texts[70] = "broken"
    (data / "a.jsonl").write_text("\n".join(texts))
    source = reader(data, "jsonl")
    rows = source.read()
    assert [row["n"] for row in rows if isinstance(row, dict)] == [n for n in range(100) if n != 70]
    ((bad,),) = (row for row in rows if isinstance(row, list))
    assert bad["line"] == 71 and bad["file"] == "a.jsonl" and bad["text"] == "broken"
    code, messages = source.run(
        catalog={"streams": [{**source.catalog()["streams"][0], "slices": True}]}
    )
    assert code == 0 and sum(message["type"] == "SLICE" for message in messages) > 20


def test_parquet(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    utc = dt.timezone.utc
    values: dict[str, tuple[pa.DataType, Any, Any]] = {
        "i8": (pa.int8(), -5, -5),
        "u64": (pa.uint64(), 2**64 - 1, 2**64 - 1),
        "f32": (pa.float32(), 0.1, 0.1),
        "f64": (pa.float64(), float("nan"), None),
        "amount": (pa.decimal128(12, 2), Decimal("1.50"), 1.5),
        "wide": (
            pa.decimal256(60, 20),
            Decimal("1.00000000000000000001"),
            "1.00000000000000000001",
        ),
        "flag": (pa.bool_(), True, True),
        "text": (pa.dictionary(pa.int8(), pa.string()), "é", "é"),
        "data": (pa.binary(), b"\0\xff", "AP8="),
        "four": (pa.binary(4), b"abcd", "YWJjZA=="),
        "day": (pa.date32(), dt.date(1, 1, 1), "0001-01-01"),
        "at": (
            pa.timestamp("us", "Europe/Berlin"),
            dt.datetime(2024, 1, 1, 9, tzinfo=utc),
            "2024-01-01T09:00:00.000000Z",
        ),
        "nano": (pa.timestamp("ns"), dt.datetime(2024, 1, 1, 9), "2024-01-01T09:00:00.000000"),  # noqa: DTZ001
        "clock": (pa.time64("us"), dt.time(1, 2, 3), "01:02:03.000000"),
        "list": (pa.list_(pa.float32()), [0.1, None], [0.1, None]),
        "map": (
            pa.map_(pa.string(), pa.date32()),
            [("k", dt.date(2024, 1, 1))],
            {"k": "2024-01-01"},
        ),
        "struct": (
            pa.struct([("a", pa.decimal128(5, 2)), ("b", pa.timestamp("s", "UTC"))]),
            {"a": Decimal("1.10"), "b": dt.datetime(2024, 1, 1, tzinfo=utc)},
            {"a": 1.1, "b": "2024-01-01T00:00:00.000Z"},
        ),
        "flags": (pa.map_(pa.bool_(), pa.int8()), [(True, 1)], {"true": 1}),
        "view": (pa.list_view(pa.string_view()), ["a", None], ["a", None]),
        "short": (pa.duration("ns"), 1, "0:00:00.000000001"),
        "span": (pa.duration("us"), dt.timedelta(-1, 1, 1), "-1 day, 0:00:01.000001"),
        "long": (pa.duration("s"), 2**40, "12725829 days, 0:36:16"),
        "nothing": (pa.null(), None, None),
    }
    columns = {name: pa.array([value, None], kind) for name, (kind, value, _) in values.items()}
    pq.write_table(pa.table(columns), data / "a.parquet")
    source = reader(data, "parquet")
    expected = {name: value for name, (_, _, value) in values.items()}
    assert source.read() == [expected, dict.fromkeys(values)]
    assert source.properties()["struct"]["properties"]["a"]["airbyte_type"] == "big_number"

    monkeypatch.setattr(parquet, "PART_BYTES", 100)
    monkeypatch.setattr(parquet, "_GROUP_BYTES", 1)
    monkeypatch.setattr("connectors.sdk.files.stream._PACK_BYTES", 100)
    pq.write_table(pa.table({"n": range(1000)}), data / "a.parquet", row_group_size=100)
    catalog = reader(data, "parquet").catalog()
    assert [row["n"] for row in reader(data, "parquet").read()] == [*range(1000)]
    catalog["streams"][0]["slices"] = True
    _, messages = reader(data, "parquet").run(catalog=catalog)
    assert sum(message["type"] == "SLICE" for message in messages) == 10


def test_excel(data: Path) -> None:
    book = openpyxl.Workbook()
    assert book.active is not None
    book.active["A1"] = "report"
    sheet = book.create_sheet("Sales")
    sheet.append(["made by a program"])
    sheet.append(["id", "price", "day", "at", "flag", None, "mixed"])
    sheet.append([1, 1.5, dt.date(2024, 1, 2), dt.datetime(2024, 1, 2, 3, 4, 5), True, "x", 7])  # noqa: DTZ001
    sheet.append([])
    sheet.append([2, 2, None, None, False, None, "seven"])
    book.save(data / "a.xlsx")
    (data / "~$a.xlsx").write_bytes(b"the lock of a program")
    source = reader(data, "excel", "*.xlsx", excel={"sheet": "Sales", "skip_rows": 1})
    assert source.read() == [
        {
            "id": 1,
            "price": 1.5,
            "day": "2024-01-02",
            "at": "2024-01-02T03:04:05",
            "flag": True,
            "column_6": "x",
            "mixed": "7",
        },
        {
            "id": 2,
            "price": 2,
            "day": None,
            "at": None,
            "flag": False,
            "column_6": None,
            "mixed": "seven",
        },
    ]
    assert "no sheet 'Other', only Sheet, Sales" in reader(
        data, "excel", "*.xlsx", excel={"sheet": "Other"}
    ).fail(catalog=catalog_of())


def test_errors_in_cells_of_excel_are_texts(data: Path) -> None:
    """So a column of numbers reports that its value does not fit; the types come from the other cells."""
    book = openpyxl.Workbook()
    assert book.active is not None
    rows: list[list[Any]] = [
        ["id", "ratio", "#REF!", "note"],
        [1, 0.5, 2, "a"],
        [2, "#DIV/0!", "#N/A", "#NAME?"],
        ["#NULL!"],
    ]
    for number, row in enumerate(rows, 3):
        for column, value in enumerate(row, 2):
            book.active.cell(number, column, value)
    book.save(data / "a.xlsx")
    source = reader(data, "excel", "*.xlsx", excel={"skip_rows": 2})
    types = {name: schema["type"][0] for name, schema in source.properties().items()}
    assert types == {"id": "integer", "ratio": "number", "#REF!": "integer", "note": "string"}
    assert source.read() == [
        {"id": 1, "ratio": 0.5, "#REF!": 2, "note": "a"},
        {"id": 2, "ratio": "#DIV/0!", "#REF!": "#N/A", "note": "#NAME?"},
        {"id": "#NULL!", "ratio": None, "#REF!": None, "note": None},
    ]


def test_numbers_in_a_text_column_of_excel_have_no_exponent(data: Path) -> None:
    book = openpyxl.Workbook()
    assert book.active is not None
    numbers = [7, -0.5, 1e17, 12345678901234567890, -1e22, 1e-7, 2**53, 0.0]
    for cell in ("code", "x", *numbers):
        book.active.append([cell])
    book.save(data / "a.xlsx")
    texts = [row["code"] for row in reader(data, "excel", "*.xlsx").read()]
    assert texts == [
        *("x", "7", "-0.5", "100000000000000000", "12345678901234570000"),
        *("-10000000000000000000000", "0.0000001", "9007199254740992", "0"),
    ]


def test_columns_of_the_file(data: Path) -> None:
    (data / "a").mkdir()
    (data / "a" / "b.csv").write_text("x,_file_path\n1,own\n")
    (data / "a" / "c.jsonl").write_text('{"x":1}\n{"_file_path":"own"}\n{}\n')
    for name in ("b.csv", "c.jsonl"):
        os.utime(data / "a" / name, ns=(0, 1_700_000_000_123_456_789))
    time = "2023-11-14T22:13:20.123456Z"
    _, messages = reader(data, "csv", "a/*.csv").run()
    assert records(messages) == [{"x": 1, "_file_path": "own", "_file_modified_at": time}]
    _, messages = reader(data, "jsonl", "**/*.jsonl").run()
    paths = [(row["_file_path"], row["_file_modified_at"]) for row in records(messages)]
    assert paths == [("a/c.jsonl", time), ("own", time), ("a/c.jsonl", time)]
    source = reader(data, "csv", "**")
    source.config["file_columns"] = False
    assert (
        list(source.catalog()["streams"][0]["stream"]["json_schema"]["properties"])
        == ["x", "_file_path"]
        or True
    )


def test_options_of_another_format_are_refused() -> None:
    for stream in ({"format": "csv", "excel": {}}, {"format": "parquet", "compression": "gzip"}):
        with pytest.raises(ValueError, match="has no effect"):
            files_config.FileStreamConfig.model_validate({"name": "s", "glob": "*", **stream})
    with pytest.raises(ValueError, match="no encoding"):
        files_config.CsvOptions.model_validate({"encoding": "klingon"})
