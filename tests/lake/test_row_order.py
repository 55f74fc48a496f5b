"""The order of a key's rows, in the task in Arrow and in Spark's windows, equals a sequential model.

The model takes the records one by one, in the order of arrival, and knows nothing of batches.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import types as t

from elt_assets.lake.columns import metadata_columns
from elt_assets.lake.columns.metadata_columns import METADATA_FIELDS
from elt_assets.lake.delta.opening import delta_schema
from elt_assets.lake.merge.history import history_schema
from elt_assets.lake.worker import merge_task
from elt_assets.lake.worker.parquet import Output
from elt_assets.protocol.catalog import DELETED_AT

START = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
FIELDS = [
    t.StructField("id", t.LongType()),
    t.StructField("part", t.StringType()),
    t.StructField("text", t.StringType()),
    t.StructField("at", t.TimestampType()),
    t.StructField(DELETED_AT, t.TimestampType()),
    *METADATA_FIELDS,
]
SCHEMA = t.StructType(FIELDS)
ARROW = pa.schema(delta_schema(SCHEMA).to_arrow())
NULLED = {"field": DELETED_AT, "change": "NULLED", "reason": "DESTINATION_TYPECAST_ERROR"}
OTHERS = [
    {**NULLED, "field": "text"},
    {**NULLED, "change": "TRUNCATED"},
    {**NULLED, "reason": "SOURCE_RETRIEVAL_ERROR"},
]
"""Changes that do not make a record a delete."""


class Record(NamedTuple):
    """A record. `key`: a number in `KEYS`. `at`: its cursor. `gone`: the time in its marker.

    Times are in hours after START. `is_odd`: the marker had a value that did not fit.
    """

    key: int
    at: int | None
    gone: int | None
    is_odd: bool

    @property
    def is_delete(self) -> bool:
        return self.gone is not None or self.is_odd

    @property
    def begins_era(self) -> bool:
        return self.is_delete and self.at is None


KEYS = [(1, None), (1, ""), (None, ""), (2, "x")]
HOURS = st.integers(0, 4)
RECORDS = st.builds(
    Record,
    key=st.sampled_from([0, 0, 0, 1, 1, 2, 3]),
    at=st.none() | HOURS,
    gone=st.one_of(st.none(), st.none(), HOURS),
    is_odd=st.sampled_from([False, False, False, True]),
)
BATCHES = st.lists(st.lists(RECORDS, max_size=6), min_size=1, max_size=5)


def row(number: int, record: Record) -> dict[str, Any]:
    """The row of the record that arrived as the number-th."""
    number_part, text_part = KEYS[record.key]
    return {
        "id": number_part,
        "part": text_part,
        "text": f"s{number}",
        "at": hour(record.at),
        DELETED_AT: hour(record.gone),
        metadata_columns.RAW_ID: f"{number:06}",
        metadata_columns.EXTRACTED_AT: hour(10 + number),
        metadata_columns.GENERATION_ID: 1,
        metadata_columns.META: {"sync_id": 1, "changes": changes(number, record)},
    }


def changes(number: int, record: Record) -> list[dict[str, str]]:
    return [OTHERS[number % len(OTHERS)], *([NULLED] if record.is_odd else [])]


def hour(number: int | None) -> dt.datetime | None:
    return None if number is None else START + dt.timedelta(hours=number)


# The model


Numbered = tuple[int, Record]


def latest(records: Sequence[Numbered]) -> dict[int, Numbered]:
    """The latest record of each key, deletes included."""
    found: dict[int, Numbered] = {}
    for number, record in records:
        before = found.get(record.key)
        if (
            before is None
            or record.begins_era
            or before[1].begins_era
            or cursor(record) >= cursor(before[1])
        ):
            found[record.key] = (number, record)
    return found


def cursor(record: Record) -> int:
    return -1 if record.at is None else record.at


RESET = (-2, 0)
"""The place of the delete that begins an era; it is before all others."""


class Version(NamedTuple):
    number: int
    record: Record
    start: int


def versions(records: Sequence[Numbered]) -> list[tuple[str, int, int | None]]:
    """The versions of each key: text, start and end."""
    eras: dict[int, list[dict[tuple[int, int], Version]]] = {}
    for number, record in records:
        key = eras.setdefault(record.key, [{}])
        if record.begins_era:
            start = 10 + number if record.gone is None else record.gone
            key.append({RESET: Version(number, record, start)})
            continue
        start = 10 + number if record.at is None else record.at
        floor = key[-1][RESET].start if RESET in key[-1] else start
        # Without a cursor, each version has its own time of extraction.
        place = (cursor(record), number if record.at is None else 0)
        key[-1][place] = Version(number, record, max(start, floor))
    found = []
    for key in eras.values():
        chain = [version for era in key for _, version in sorted(era.items())]
        starts = [min(v.start for v in chain[number:]) for number in range(len(chain))]
        for version, start, end in zip(chain, starts, [*starts[1:], None], strict=True):
            if not version.record.is_delete:
                found.append((f"s{version.number}", start, end))
    return sorted(found)


# The task in Arrow


class Tables:
    """The files of a table or of a history, merged into by the task."""

    def __init__(self, folder: Path, *, is_history: bool):
        self.folder, self.is_history = folder, is_history
        self.visible: list[str] = []
        self.hidden: list[str] = []

    def merge(self, rows: Sequence[dict[str, Any]]) -> None:
        batch = self.folder / f"batch-{len(list(self.folder.iterdir()))}.parquet"
        pq.write_table(pa.Table.from_pylist(list(rows), ARROW), batch)
        names = history_schema(SCHEMA).names if self.is_history else SCHEMA.names
        markers = merge_task.Markers(
            [DELETED_AT],
            metadata_columns.META,
            metadata_columns.NULLED,
            metadata_columns.OWN_REASON,
        )
        root = pafs.LocalFileSystem(), str(self.folder)
        job = merge_task.MergeJob(
            batch_files=[str(batch)],
            table_files=[*self.visible, *self.hidden],
            key=[["id"], ["part"]],
            cursor=["at"],
            raw_id=metadata_columns.RAW_ID,
            markers=markers,
            visible=Output(root, "data"),
            visible_columns=names,
            hidden=Output(root, "_elt"),
            hidden_columns=names,
            schema=ARROW,
            validity=self._validity() if self.is_history else None,
        )
        result = merge_task.make_merge(job)(0)
        assert result is not None
        self.visible, self.hidden = ([name for name, *_ in files] for files in result[:2])

    def _validity(self) -> merge_task.Validity:
        own = {field.name for field in METADATA_FIELDS}
        return merge_task.Validity(
            *("_valid_from", "_valid_to", "_is_current", "_closed", "_epoch"),
            extracted=metadata_columns.EXTRACTED_AT,
            content=[name for name in SCHEMA.names if name not in own],
            deleted_at=[DELETED_AT],
        )

    def rows(self, files: Sequence[str]) -> list[dict[str, Any]]:
        tables = [pq.ParquetFile(self.folder / name).read() for name in files]
        return [row for table in tables for row in table.to_pylist()]


def hours(time: dt.datetime | None) -> int | None:
    return None if time is None else int((time - START).total_seconds() // 3600)


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(BATCHES)
def test_any_split_into_batches_gives_the_rows_of_the_model(batches: list[list[Record]]) -> None:
    compare(batches)


@pytest.mark.long
@settings(max_examples=3_000, suppress_health_check=list(HealthCheck))
@given(BATCHES)
def test_many_splits_into_batches_give_the_rows_of_the_model(batches: list[list[Record]]) -> None:
    compare(batches)


def compare(batches: list[list[Record]]) -> None:
    records: list[Numbered] = []
    with TemporaryDirectory(prefix="row-order-") as folder:
        places = [Path(folder, name) for name in ("table", "history")]
        for place in places:
            place.mkdir()
        table, history = (Tables(p, is_history=p.name == "history") for p in places)
        for batch in filter(None, batches):
            new = list(itertools.islice(enumerate(batch, len(records)), len(batch)))
            records += new
            for tables in (table, history):
                tables.merge([row(*each) for each in new])
            expected = {f"s{n}" for n, record in latest(records).values() if not record.is_delete}
            assert {each["text"] for each in table.rows(table.visible)} == expected
            found = history.rows(history.visible)
            assert {each["text"] for each in found if each["_is_current"]} == expected
            validity = [(e["text"], hours(e["_valid_from"]), hours(e["_valid_to"])) for e in found]
            assert sorted(validity) == versions(records)
