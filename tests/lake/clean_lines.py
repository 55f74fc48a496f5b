"""The fast parse of segments beside the exact one, for the tests of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from elt_assets.lake.delta.table import Table
from elt_assets.lake.parse.conform import Key, conform
from elt_assets.lake.parse.segment_parsing import SegmentParser, unclean_lines
from elt_assets.lake.parse.undeclared import UndeclaredFields
from elt_assets.lake.schema.from_json_schema import columns
from elt_assets.lake.schema.logical_types import Column
from elt_assets.protocol.airbyte.messages import Form
from elt_assets.storage.location import Location
from elt_assets.sync.segments import Piece, Segment, row_line
from tests.lake.conforming import STAMP
from tests.lake.staging import APP

RECEIVED_AT = 1_700_000_000_999
STREAM = "users"


def segment(folder: Path, form: Form, lines: Sequence[bytes]) -> Segment:
    """A segment of one piece; the lines have no newlines."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{uuid4().hex}.jsonl"
    data = b"".join(line + b"\n" for line in lines)
    path.write_bytes(data)
    piece = Piece(form, 0, len(data), 7, len(lines), RECEIVED_AT, STREAM)
    return Segment(path, len(lines), len(data), [piece])


@dataclass(frozen=True)
class Parsed:
    """The rows of both ways, by their ids, for the clean lines only; `unclean`: numbers of the others.

    `counts`: of undeclared fields in the clean lines, both ways.
    """

    fast: dict[str, Any]
    exact: dict[str, Any]
    unclean: list[int]
    counts: tuple[Any, Any]


def both(
    spark: SparkSession,
    folder: Path,
    properties: Any,
    staged: Segment,
    key: Key = (),
    strict: Sequence[str] = (),
) -> Parsed:
    """Parse a segment in tasks, and its clean lines with `conform`."""
    found = _columns(properties, strict)
    table = Table(str(folder / "table"), APP)
    parser = SegmentParser(table, found, found, STAMP, key, max_unclean=1)
    assert parser.is_possible
    files, results = parser.parse(spark, staged, Location.of(str(staged.path)))
    unclean = [line for result in results for _, line, _, _ in unclean_lines(result)]
    (piece,) = staged.pieces
    lines = staged.path.read_bytes().split(b"\n")[:-1]
    clean = folder / f"{uuid4().hex}.rows"
    wanted = ((n, line) for n, line in enumerate(lines) if n not in unclean)
    clean.write_bytes(b"".join(row_line(piece, number, line + b"\n") for number, line in wanted))
    exact = conform(spark, [str(clean)], found, STAMP, key)
    fast = table.read_files(spark, files, exact.schema)
    counted = UndeclaredFields(found).rewrite(clean, clean.with_suffix(".rewritten"), keeps=False)
    in_tasks = {name: n for result in results for name, n in result.undeclared.items()}
    assert sum(file.records for file in files) + len(unclean) == len(lines)
    return Parsed(_rows(fast), _rows(exact), unclean, (in_tasks, dict(counted)))


def _columns(properties: Any, strict: Sequence[str]) -> list[Column]:
    found = columns({"properties": properties})
    return [replace(c, strict=True) if c.source in strict else c for c in found]


def _rows(frame: Any) -> dict[str, Any]:
    """Rows as JSON, which shows the sign of a zero and each digit."""
    shown = frame.select(
        "_airbyte_raw_id", f.to_json(f.struct("*"), {"ignoreNullFields": "false"}).alias("row")
    )
    return {
        row["_airbyte_raw_id"]: json.loads(row["row"], parse_float=str) for row in shown.collect()
    }


def airbyte(data: bytes, emitted_at: int = 1_700_000_000_123) -> bytes:
    return b'{"type":"RECORD","record":{"stream":"users","data":%b,"emitted_at":%d}}' % (
        data,
        emitted_at,
    )


def singer(data: bytes) -> bytes:
    return (
        b'{"type":"RECORD","stream":"users","record":%b,'
        b'"time_extracted":"2024-01-02T03:04:05.123456Z"}' % data
    )


def row(data: bytes, sequence: int) -> bytes:
    own = b'"_elt:extracted_at":1700000000123,"_elt:sequence":%d}' % sequence
    return data[:-1] + (b"," if data[:-1].strip() != b"{" else b"") + own


def encoded(form: Form, data: Sequence[bytes]) -> list[bytes]:
    """Lines of a form with some data; what is not an object is left as it is."""
    if form is Form.AIRBYTE:
        return [airbyte(each) for each in data]
    if form is Form.SINGER:
        return [singer(each) for each in data]
    return [row(each, 7 + n) if each[:1] == b"{" else each for n, each in enumerate(data)]
