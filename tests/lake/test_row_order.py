"""The order of a key's rows, in one task and in blocks of sorted rows, equals a sequential model.

The model takes the records one by one, in the order of arrival, and knows nothing of batches.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
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
from elt_assets.lake.columns.metadata_columns import (
    DELETED_FIELD,
    METADATA_FIELDS,
    ROW_DELETED_AT,
)
from elt_assets.lake.delta.opening import delta_schema
from elt_assets.lake.merge.history import history_schema, wide_schema
from elt_assets.lake.worker import merge_task, row_order
from elt_assets.lake.worker.file_tasks import read_rows
from elt_assets.lake.worker.parquet import Output
from elt_assets.lake.worker.row_order import ARRIVAL, Markers, Rules, Validity
from elt_assets.lake.worker.soft_deletes import SoftDeleteColumns
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
KEPT_SCHEMA = t.StructType([*FIELDS, DELETED_FIELD])
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


def find_soft_deleted(records: Sequence[Numbered]) -> dict[str, int]:
    """The row that stays of each deleted key, and the time of the delete: the latest of its rows in the order
    of eras, cursors and arrival."""
    last = latest(records)
    eras: dict[int, int] = {}
    rows: dict[int, tuple[tuple[int, int, int], str]] = {}
    for number, record in records:
        eras[record.key] = eras.get(record.key, 0) + record.begins_era
        place = (eras[record.key], cursor(record), number), f"s{number}"
        if not record.is_delete and place > rows.get(record.key, ((-1, -1, -1), "")):
            rows[record.key] = place
    ends = {key: end for key, end in last.items() if end[1].is_delete and key in rows}
    return {
        rows[key][1]: 10 + number if record.gone is None else record.gone
        for key, (number, record) in ends.items()
    }


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


# The tasks


ONE_TASK, BLOCKS = "one task", "blocks"
ORDER = [(name, "ascending") for name in ("id", "part", ARRIVAL, metadata_columns.RAW_ID)]


class Tables:
    """The files of a table or of a history, merged into by a task."""

    def __init__(self, folder: Path, way: str, *, is_history: bool, keeps: bool = False):
        self.folder, self.way, self.is_history = folder, way, is_history
        self.keeps = keeps
        self.visible: list[str] = []
        self.hidden: list[str] = []
        folder.mkdir()

    def merge(self, rows: Sequence[dict[str, Any]]) -> None:
        job = self.job(*rows)
        result = merge_task.make_merge(job)(0) if self.way == ONE_TASK else merge_blocks(job)
        assert not isinstance(result, str)
        self.visible, self.hidden = ([name for name, *_ in files] for files in result[:2])

    def job(self, *rows: dict[str, Any]) -> merge_task.MergeJob:
        """The merge of rows, which are written to a file."""
        batch = f"batch-{len(list(self.folder.iterdir()))}.parquet"
        pq.write_table(pa.Table.from_pylist(list(rows), ARROW), self.folder / batch)
        own = KEPT_SCHEMA if self.keeps else SCHEMA
        schema = wide_schema(own) if self.is_history else own
        names = history_schema(own).names if self.is_history else own.names
        files = [(batch, 1), *((name, 0) for name in (*self.visible, *self.hidden))]
        root = pafs.LocalFileSystem(), str(self.folder)
        return merge_task.MergeJob(
            files=[(f"{self.folder}/{name}", arrival) for name, arrival in files],
            schema=pa.schema(delta_schema(schema).to_arrow()),
            rules=self._rules(),
            visible=Output(root, "data"),
            visible_columns=names,
            hidden=Output(root, "_elt"),
            hidden_columns=schema.names,
        )

    def _rules(self) -> Rules:
        own = {field.name for field in METADATA_FIELDS}
        markers = Markers(
            [DELETED_AT],
            metadata_columns.META,
            metadata_columns.NULLED,
            metadata_columns.OWN_REASON,
        )
        validity = Validity(
            *("_valid_from", "_valid_to", "_is_current", "_elt_closed_at", "_elt_epoch"),
            extracted=metadata_columns.EXTRACTED_AT,
            content=[name for name in SCHEMA.names if name not in own],
            deleted_at=[DELETED_AT],
        )
        key = [["id"], ["part"]]
        raw_id = metadata_columns.RAW_ID
        columns = SoftDeleteColumns(
            *(ROW_DELETED_AT, raw_id, metadata_columns.EXTRACTED_AT, metadata_columns.META),
            sync_id=metadata_columns.SYNC_ID,
            markers=[DELETED_AT],
        )
        return Rules(
            *(key, key, ["at"], raw_id, markers, validity if self.is_history else None),
            soft_deletes=columns if self.keeps else None,
        )

    def rows(self, files: Sequence[str]) -> list[dict[str, Any]]:
        tables = [pq.ParquetFile(self.folder / name).read() for name in files]
        return [row for table in tables for row in table.to_pylist()]


def merge_blocks(job: merge_task.MergeJob) -> Any:
    """Merge the rows as Spark sends them: sorted, in batches; here, each few rows are a block."""
    tables = []
    for path, arrival in job.files:
        rows = pa.Table.from_batches(list(read_rows(pafs.LocalFileSystem(), path, job.schema)))
        tables.append(rows.append_column(ARRIVAL, pa.repeat(pa.scalar(arrival), len(rows))))
    rows = pa.concat_tables(tables).sort_by(ORDER).combine_chunks()
    sizes = itertools.cycle([1, 3, 2])
    batches = []
    while len(rows):
        size = next(sizes)
        batches += rows.slice(0, size).to_batches()
        rows = rows.slice(size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge_task, "_BLOCK_BYTES", 1)
        (result,) = merge_task.make_merge_of_range(job)(iter(batches))
    return json.loads(result.column(0)[0].as_py())


def hours(time: dt.datetime | None) -> int | None:
    return None if time is None else int((time - START).total_seconds() // 3600)


@pytest.mark.parametrize("way", [ONE_TASK, BLOCKS])
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(batches=BATCHES)
def test_any_split_into_batches_gives_the_rows_of_the_model(
    way: str, batches: list[list[Record]]
) -> None:
    compare(way, batches)


@pytest.mark.long
@pytest.mark.parametrize("way", [ONE_TASK, BLOCKS])
@settings(max_examples=3_000, suppress_health_check=list(HealthCheck))
@given(batches=BATCHES)
def test_many_splits_into_batches_give_the_rows_of_the_model(
    way: str, batches: list[list[Record]]
) -> None:
    compare(way, batches)


def compare(way: str, batches: list[list[Record]]) -> None:
    records: list[Numbered] = []
    with TemporaryDirectory(prefix="row-order-") as folder:
        table, history, keeping = (
            Tables(Path(folder, name), way, is_history=name == "history", keeps=name == "keeping")
            for name in ("table", "history", "keeping")
        )
        for batch in filter(None, batches):
            new = list(itertools.islice(enumerate(batch, len(records)), len(batch)))
            records += new
            for tables in (table, history, keeping):
                tables.merge([row(*each) for each in new])
            expected = {f"s{n}" for n, record in latest(records).values() if not record.is_delete}
            assert {each["text"] for each in table.rows(table.visible)} == expected
            stored = [(r["text"], hours(r[ROW_DELETED_AT])) for r in keeping.rows(keeping.visible)]
            assert {text for text, time in stored if time is None} == expected
            deleted_rows = {text: time for text, time in stored if time is not None}
            assert deleted_rows == find_soft_deleted(records)
            hidden = (tables.rows(tables.hidden) for tables in (table, keeping))
            ids, same_ids = ({r[metadata_columns.RAW_ID] for r in rows} for rows in hidden)
            assert ids == same_ids
            found = history.rows(history.visible)
            assert {each["text"] for each in found if each["_is_current"]} == expected
            validity = [(e["text"], hours(e["_valid_from"]), hours(e["_valid_to"])) for e in found]
            assert sorted(validity) == versions(records)


def test_one_task_leaves_rows_that_are_too_large_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge_task, "_MAX_BYTES", 1)
    table = Tables(tmp_path / "table", ONE_TASK, is_history=False)
    assert merge_task.make_merge(table.job(row(0, Record(0, 1, None, False))))(0) == "too large"
    assert [path.suffix for path in table.folder.iterdir()] == [".parquet"]


def test_a_task_holds_a_block_however_many_rows_a_key_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def latest_rows(rows: pa.Table, rules: Rules) -> pa.Table:
        sizes.append(len(rows))
        return row_order.latest_rows(rows, rules)

    monkeypatch.setattr(merge_task, "latest_rows", latest_rows)
    table = Tables(tmp_path / "table", BLOCKS, is_history=False)
    records = [Record(0, n % 5, None, False) for n in range(100)]
    records[50] = Record(0, None, 1, False)
    table.merge([row(*each) for each in enumerate(records)])
    assert len(sizes) == 50
    assert (
        max(sizes) <= 3 + 2
    )  # the rows of a block, the latest row, and the delete that began its era
    assert [each["text"] for each in table.rows(table.visible)] == ["s99"]
    assert [each["text"] for each in table.rows(table.hidden)] == ["s50"]
