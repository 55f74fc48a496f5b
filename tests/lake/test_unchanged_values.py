"""Values that a log of changes leaves out are those of the version before, in any merge."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from elt_assets.protocol.airbyte.catalog import DELETED_AT
from elt_assets.protocol.airbyte.messages import UNCHANGED
from elt_assets.protocol.airbyte.sync_modes import APPEND, APPEND_DEDUP
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


Record = tuple[dict[str, Any], list[str]]
"""A record of a log, and the fields whose values it leaves out."""


@dataclass
class Source:
    """Rows of a database, and a log of what happens to them, without large values that did not change."""

    chance: random.Random
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    versions: list[tuple[Any, ...]] = field(default_factory=list)
    time: int = 0

    def change(self) -> Record:
        """Return a record of the log, and the fields whose values it leaves out."""
        self.time += 1
        number = self.chance.randint(1, 4)
        if number in self.rows and self.chance.random() < 0.2:
            del self.rows[number]
            return {"id": number, DELETED_AT: "2024-01-01"}, []
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
        return {name: value for name, value in row.items() if name not in left_out}, left_out


def write(lake: Lake, records: Sequence[Record], writer: Any, first: int) -> None:
    for number, (data, left_out) in enumerate(records, first):
        entry = {"change": "NULLED", "reason": UNCHANGED}
        meta = {"changes": [{"field": name, **entry} for name in left_out]} if left_out else None
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
    changes = lake.table.dataframe(lake.spark).selectExpr("size(_airbyte_meta.changes)").collect()
    assert not any(count for (count,) in changes)


def test_what_is_not_known_stays_a_recorded_null(lake: Lake) -> None:
    for policy in (APPEND_DEDUP, APPEND):
        lake.root = str(lake.folder / policy)
        writer = lake.writer(stream(FIELDS, policy, key=["id"]))
        write(lake, [({"id": 1, "n": 1}, ["body"])], writer, 0)
        assert writer.commit(checkpoint(1, final=True)).changed == 1
        (row,) = lake.table.dataframe(lake.spark).collect()
        assert row["body"] is None
        assert [tuple(change) for change in row["_airbyte_meta"]["changes"]] == [
            ("body", "NULLED", UNCHANGED)
        ]
