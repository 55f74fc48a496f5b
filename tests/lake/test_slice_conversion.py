"""Batches of slices become the rows that their records become: taken over as Arrow, or parsed from JSON."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors.sdk.arrow_records import lines_of, report_changes
from connectors.sdk.slices import SliceReader
from elt_assets.errors import TransientError
from elt_assets.lake.worker.slice_batches import BatchConverter
from elt_assets.lake.worker.slices import (
    LocalFile,
    SliceResult,
    SliceSource,
    SliceTask,
    describe_failure,
    make_slice_read,
)
from elt_assets.protocol.messages import UNCHANGED
from tests.lake.conforming import Conformer
from tests.lake.staging import (
    BIG_INTEGER,
    BIG_NUMBER,
    BINARY,
    BOOLEAN,
    DATE,
    INTEGER,
    JSON,
    NTZ,
    NUMBER,
    STRING,
    TIMESTAMP,
)

DECLARED: dict[str, Any] = {
    "id": INTEGER,
    "text": STRING,
    "number": NUMBER,
    "amount": BIG_NUMBER,
    "whole": BIG_INTEGER,
    "day": DATE,
    "at": TIMESTAMP,
    "local": NTZ,
    "flag": BOOLEAN,
    "body": JSON,
    "data": BINARY,
    "_elt_changes": STRING,
    "_ELT_RECORD": BINARY,
}
REPORTED = "changes that the source reports"
SDK = SliceReader("any", b"{}", b"{}")
SCHEMA = {"type": "object", "properties": DECLARED}


class Reader:
    """Lines of JSON, as the SDK makes them; `seen` counts the rows that needed them."""

    def __init__(self) -> None:
        self.seen = 0

    def write_lines(self, batch: pa.RecordBatch, emitted_at: int) -> bytes:
        self.seen += len(batch)
        return lines_of(batch, SCHEMA, emitted_at)


REASONS = [UNCHANGED, "SOURCE_SERIALIZATION_ERROR", None]
CHANGE = {
    "field": st.sampled_from(["text", "amount"]),
    "change": st.just("NULLED"),
    "reason": st.sampled_from(REASONS),
}
CHANGES = pa.list_(pa.struct([(name, pa.string()) for name in CHANGE]))
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
days = st.dates() | st.sampled_from([dt.date(1, 1, 1), dt.date(9999, 12, 31)])
times = st.datetimes()
COLUMNS: dict[str, st.SearchStrategy[tuple[pa.DataType, Any]]] = {
    "id": st.sampled_from([pa.int64(), pa.int16(), pa.uint32()]).map(
        lambda kind: (kind, st.integers(0, 2**15 - 1))
    )
    | st.just((pa.uint64(), st.integers(0, 2**64 - 1))),
    "text": st.sampled_from([pa.string(), pa.large_string()]).map(lambda kind: (kind, texts)),
    "number": st.sampled_from(
        [
            (pa.float64(), st.floats()),
            (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
            (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
        ]
    ),
    "amount": st.sampled_from(
        [
            (pa.decimal128(12, 2), st.decimals("-9999999999", "9999999999", places=2)),
            (pa.decimal128(38, 12), st.decimals("-1", "1", places=12)),
            (pa.decimal128(20, 9), st.decimals("-9999999999", "9999999999", places=9)),
        ]
    ),
    "whole": st.just((pa.decimal128(38, 0), st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal))),
    "day": st.just((pa.date32(), days))
    | st.just((pa.int32(), st.sampled_from([-800_000, 0, 3_000_000]))).map(lambda pair: pair),
    "at": st.sampled_from(["s", "ms", "us"]).map(
        lambda unit: (pa.timestamp(unit, "UTC"), times.map(lambda t: _cut(t, unit)))
    ),
    "local": st.just((pa.timestamp("us"), times)),
    "flag": st.just((pa.bool_(), st.booleans())),
    "body": st.just(
        (
            pa.string(),
            st.sampled_from(
                ['{"b": 1.10, "a": [1, 2]}', "[]", "null", '"x"', "1e2", "{", "", "[1,\n2]"]
            ),
        )
    ),
    "data": st.just((pa.binary(), st.binary(max_size=5))),
    "more": st.just((pa.string(), texts)),
    "_elt_changes": st.just((pa.string(), texts)),
    "_ELT_RECORD": st.just((pa.binary(), st.binary(max_size=5))),
    REPORTED: st.just((CHANGES, st.lists(st.builds(dict, **CHANGE), max_size=2))),
}


def _cut(time: dt.datetime, unit: str) -> dt.datetime:
    """Return a time in UTC without the parts that a unit does not have."""
    step = {"s": 1_000_000, "ms": 1_000, "us": 1}[unit]
    return time.replace(microsecond=time.microsecond // step * step, tzinfo=dt.timezone.utc)


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    """Some columns of any types, of the fields in any order."""
    rows = draw(st.integers(1, 4))
    names = draw(st.permutations(list(COLUMNS)).map(lambda n: n[: len(n) // 2]))
    arrays = []
    for name in names:
        kind, values = draw(COLUMNS[name])
        cells = draw(st.lists(st.none() | values, min_size=rows, max_size=rows))
        arrays.append(
            pa.array(cells, kind).cast(pa.date32()) if name == "day" else pa.array(cells, kind)
        )
    batch = pa.RecordBatch.from_arrays(arrays, names=names)
    if REPORTED not in names:
        return batch
    place = names.index(REPORTED)
    return report_changes(batch.remove_column(place), batch.column(place))


def convert(conformer: Conformer, batch: pa.RecordBatch, *, as_json: bool) -> Any:
    """The rows, the rejected records and the counts of a batch, without times."""
    job = conformer.job(DECLARED, key=[["id"]])
    reader = Reader()
    converter = BatchConverter(job, reader.write_lines, 1 << 28, SDK.split)
    made = list(converter._parse(batch, 0) if as_json else converter.convert(batch, 0))
    rows = [_plain(row) for part in made for row in part.batch.to_pylist()]
    dead = [_plain(row) for part in made if part.dead for row in part.dead.to_pylist()]
    changed = (
        sum(part.changed for part in made),
        set[str]().union(*(part.dependent for part in made)),
    )
    counts: list[Counter[Any]] = [
        sum((getattr(part, name) for part in made), start=Counter())
        for name in ("undeclared", "changes", "reasons")
    ]
    return rows, dead, changed, counts


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: repr(value)
        for name, value in row.items()
        if not name.endswith(("extracted_at", "rejected_at"))
    }


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(batch=batches())
def test_a_batch_becomes_what_its_records_become(
    conformer: Conformer, batch: pa.RecordBatch
) -> None:
    assert convert(conformer, batch, as_json=False) == convert(conformer, batch, as_json=True)


def test_typed_values_need_no_json(conformer: Conformer) -> None:
    batch = pa.RecordBatch.from_pylist(
        [
            {
                "id": 1,
                "text": "é",
                "amount": Decimal("1.50"),
                "at": dt.datetime(2024, 2, 29, tzinfo=dt.timezone.utc),
                "body": '{"b": 1.10}',
            }
        ]
    )
    reader = Reader()
    job = conformer.job(DECLARED, key=[["id"]])
    converter = BatchConverter(job, reader.write_lines, 0, SDK.split)
    [made] = converter.convert(batch, 0)
    assert reader.seen == 0
    [row] = made.batch.to_pylist()
    assert (row["amount"], row["body"]) == (Decimal("1.500000000"), '{"b":1.1}')


@pytest.mark.parametrize("column", [{"id": None}, {"text": "without a key"}])
def test_a_row_without_a_key_is_rejected(conformer: Conformer, column: Any) -> None:
    batch = pa.RecordBatch.from_pylist([{"id": 1, "text": "a"}, {"id": None, **column}])
    rows, dead, *_ = convert(conformer, batch, as_json=False)
    assert [row["id"] for row in rows] == ["1"]
    assert [row["reason"] for row in dead] == ["'every field of the primary key is null'"]


def test_workers_without_the_package_of_the_source_say_so(conformer: Conformer) -> None:
    job = conformer.job(DECLARED)
    stream = b'{"stream": {"name": "a", "json_schema": {}}, "sync_mode": "full_refresh"}'
    source = SliceSource("no_such_package", b"{}", stream, Path("/"))
    values = make_slice_read(job, source, [SliceTask("part 1", b"{}", 0)])(0)
    kind, message, guidance, _ = SliceResult(*values).failure or ("", "", "", "")
    assert kind == "config_error" and "they have no module 'no_such_package'" in message
    assert "slices: false" in str(guidance)


def test_an_error_of_the_source_names_the_slice() -> None:
    error, task = (
        TransientError("the server is away", guidance="wait"),
        SliceTask("a to b", b"", 0),
    )
    assert describe_failure(error, task) == (
        *("transient_error", "slice a to b: the server is away"),
        *("wait", None),
    )
    kind, message, _, stack = describe_failure(KeyError("x"), task)
    assert (kind, message) == ("system_error", "the slice a to b cannot be read: KeyError('x')")
    assert stack is not None
    absent = replace(task, file=LocalFile(Path("/gone"), "1.arrow"))
    _, message, guidance, _ = describe_failure(FileNotFoundError("/gone"), absent)
    assert "do not share its file" in message and "ELT_STAGING" in str(guidance)
