"""Rows of a log that depend on those before them: values that it leaves out, and truncated tables."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from elt_assets.protocol.catalog import APPEND, APPEND_DEDUP, DELETED_AT
from elt_assets.protocol.messages import TRUNCATED, UNCHANGED
from tests.lake.harness import Lake
from tests.lake.staging import INTEGER, STRING, checkpoint, rows, stage, stream

FIELDS: dict[str, Any] = {
    "id": INTEGER,
    "n": INTEGER,
    "body": STRING,
    "a.b": STRING,
    DELETED_AT: STRING,
}
pytestmark = pytest.mark.usefixtures("agreeing_readers")


Record = tuple[dict[str, Any], dict[str, str]]
"""A record of a log, and the reasons of the nulls that it reports, by field."""
TRUNCATION: Record = ({DELETED_AT: "2024-01-01"}, {"id": TRUNCATED})


@dataclass
class Source:
    """Rows of a database, and a log of what happens to them, without large values that did not change."""

    chance: random.Random
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    versions: list[tuple[Any, ...]] = field(default_factory=list)
    time: int = 0

    def change(self) -> Record:
        """Return a record of the log."""
        self.time += 1
        number = self.chance.randint(1, 4)
        if self.chance.random() < 0.15:
            self.rows.clear()
            return TRUNCATION
        if number in self.rows and self.chance.random() < 0.2:
            del self.rows[number]
            return {"id": number, DELETED_AT: "2024-01-01"}, {}
        before = self.rows.get(number)
        row: dict[str, Any] = {"id": number, "n": self.time}
        left_out = []
        for name in ("body", "a.b"):
            if before is not None and self.chance.random() < 0.6:
                row[name] = before[name]
                left_out.append(name)
            else:
                row[name] = self.chance.choice([None, f"{name} at {self.time}"])
        self.rows[number] = row
        self.versions.append(tuple(row[name] for name in ("id", "n", "body", "a.b")))
        sent = {name: value for name, value in row.items() if name not in left_out}
        return sent, dict.fromkeys(left_out, UNCHANGED)


def write(lake: Lake, records: Sequence[Record], writer: Any, first: int) -> None:
    for number, (data, reasons) in enumerate(records, first):
        nulls = [
            {"field": name, "change": "NULLED", "reason": reason}
            for name, reason in reasons.items()
        ]
        meta = {"changes": nulls} if nulls else None
        writer.write(stage(lake.folder / "staging", [data], meta=meta, first=number))


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 6))]
)
def test_rows_and_versions_are_those_of_the_source(lake: Lake, seed: int) -> None:
    source, lake.history = Source(random.Random(seed)), True
    configured = stream(FIELDS, APPEND_DEDUP, key=["id"])
    for sync in range(3):
        configured.sync_id = 42 + sync
        writer = lake.writer(configured)
        for number in range(2):
            records = [source.change() for _ in range(6)]
            write(lake, records, writer, number * 6)
            writer.commit(checkpoint(number, final=number == 1))
        writer.close()
    names = ("id", "n", "body", "a.b")
    columns = ("id", "n", "body", "a_b")
    assert rows(lake.spark, lake.table, *columns) == sorted(
        (tuple(row[name] for name in names) for row in source.rows.values()), key=repr
    )
    assert lake.versions(*columns) == sorted(source.versions, key=repr)
    current = [number for number, is_current in lake.versions("id", "_is_current") if is_current]
    assert sorted(current) == sorted(source.rows)
    changes = lake.table.dataframe(lake.spark).selectExpr("size(_airbyte_meta.changes)").collect()
    assert not any(count for (count,) in changes)


def test_what_is_not_known_stays_a_recorded_null(lake: Lake) -> None:
    for policy in (APPEND_DEDUP, APPEND):
        lake.root = str(lake.folder / policy)
        writer = lake.writer(stream(FIELDS, policy, key=["id"]))
        write(lake, [({"id": 1, "n": 1}, {"body": UNCHANGED})], writer, 0)
        assert writer.commit(checkpoint(1, final=True)).changed == 1
        (row,) = lake.table.dataframe(lake.spark).collect()
        assert row["body"] is None
        assert [tuple(change) for change in row["_airbyte_meta"]["changes"]] == [
            ("body", "NULLED", UNCHANGED)
        ]


def test_a_truncation_leaves_rows_that_are_later_by_the_cursor_or_arrived_after_it(
    lake: Lake,
) -> None:
    lake.history = True
    writer = lake.writer(stream(FIELDS, APPEND_DEDUP, key=["id"], cursor=["n"]))
    cursors = {1: 1, 2: 2, 3: 2, 4: 4}
    write(lake, [({"id": number, "n": n}, {}) for number, n in cursors.items()], writer, 0)
    writer.commit(checkpoint(1))
    truncation = {**TRUNCATION[0], "n": 3}, TRUNCATION[1]
    write(lake, [({"id": 7, "n": 2}, {}), truncation, ({"id": 1, "n": 3}, {})], writer, 4)
    committed = writer.commit(checkpoint(2, final=True))
    assert (committed.rejected, committed.changed) == (0, 0)
    assert rows(lake.spark, lake.table, "id", "n") == [(1, 3), (4, 4)]
    assert lake.versions("id", "n", "_is_current") == [
        (1, 1, False),
        (1, 3, True),
        (2, 2, False),
        (3, 2, False),
        (4, 4, True),
        (7, 2, False),
    ]


def test_a_truncation_is_one_row_of_a_table_that_is_appended_to(lake: Lake) -> None:
    writer = lake.writer(stream(FIELDS, APPEND, key=["id"]))
    write(lake, [({"id": 1, "n": 1}, {}), TRUNCATION, ({"id": 1, "n": 2}, {})], writer, 0)
    writer.commit(checkpoint(1, final=True))
    assert rows(lake.spark, lake.table, "id", DELETED_AT) == [
        (1, None),
        (1, None),
        (None, "2024-01-01"),
    ]


def test_a_record_without_a_key_is_rejected_for_any_other_reason(lake: Lake) -> None:
    writer = lake.writer(stream(FIELDS, APPEND_DEDUP, key=["id"]))
    write(lake, [({"id": 1, "n": 1}, {}), (TRUNCATION[0], {"id": UNCHANGED})], writer, 0)
    assert writer.commit(checkpoint(1, final=True)).rejected == 1
    assert rows(lake.spark, lake.table, "id") == [(1,)]
