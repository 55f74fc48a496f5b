"""An erasure takes exactly the rows that are selected, whatever the types of the keys and of the condition.

Rows, some of them rejected, are synced in parts, with or without a history and partitions. Then rows are
erased by a condition or a file of keys, and every table is compared with a few lines over dicts. A sync of
the same records brings them back, unless their keys are suppressed. In the long form (`-m long`) each erasure
is killed at a failpoint and run again; each seed is a test of its own, as those of `test_erasure_model`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from elt_assets.connection.read_only_query import check_condition
from elt_assets.failpoints import armed
from elt_assets.lake.admin.erased_keys import read_keys
from elt_assets.lake.admin.erased_rows import Selection
from elt_assets.lake.admin.erasure import Erasure, KeyLog, erase
from elt_assets.lake.session import SparkProvider
from elt_assets.protocol.catalog import APPEND, APPEND_DEDUP, ConfiguredStream
from tests.lake.crashing import Death, Killed
from tests.lake.harness import Lake
from tests.lake.staging import APP, BIG_NUMBER, DATE, INTEGER, NUMBER, STRING, TIMESTAMP, stream
from tests.lake.test_erasure_model import seeds_of_long_form
from tests.support.value_search import find_value

pytestmark = pytest.mark.spark

KEYS: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "integer": (INTEGER, [0, 1, -5, 2**40, 7]),
    "text": (STRING, ["", "a", "ä'", "A", "x" * 40]),
    "number": (NUMBER, [0.5, 1.0, -2.25, 1e10, 3.0]),
    "decimal": (BIG_NUMBER, ["0.5", "1", "-2.25", "100000000000", "3"]),
    "date": (DATE, ["2026-01-01", "1969-12-31", "2026-01-02", "2000-02-29", "1970-01-01"]),
    "time": (TIMESTAMP, [f"2026-01-0{day}T00:00:00+00:00" for day in range(1, 6)]),
}
"""The types of keys, each with values that differ."""
COUNT = itertools.count()
SALT = (b"salt", "fingerprint")
Select = Callable[[Erasure], Selection]


@dataclass
class Example:
    """A table, and what it must have; all of it follows from a seed."""

    lake: Lake
    chance: random.Random
    users: ConfiguredStream = field(init=False)
    records: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kind = self.chance.choice(list(KEYS))
        self.has_key = self.chance.random() < 0.75
        self.partitions = self.chance.choice([(None,), (None,), ("a", "b")])
        self.lake.history = (
            self.has_key and self.partitions == (None,) and self.chance.random() < 0.5
        )
        columns = {
            "id": KEYS[self.kind][0],
            "part": INTEGER,
            "group": INTEGER,
            "text": STRING,
            "at": INTEGER,
        }
        key = self.chance.choice([["id"], ["id", "part"]]) if self.has_key else []
        self.users = stream(columns, APPEND_DEDUP if key else APPEND, key=key, cursor=["at"])

    def fill(self) -> None:
        for time in range(self.chance.choice([1, 3])):
            for partition in self.partitions:
                new = [self._make_record(time) for _ in range(self.chance.randint(1, 5))]
                self.records += [{**record, "partition": partition} for record in new]
                self._sync(new, partition)

    def _make_record(self, time: int) -> dict[str, Any]:
        ident = self.chance.choice(KEYS[self.kind][1])
        part, group = self.chance.choice([1, 2]), self.chance.choice([1, 2, 3])
        is_bad = self.has_key and self.chance.random() < 0.2
        values = {"id": None if is_bad else ident, "part": None if is_bad else part}
        return {**values, "group": group, "text": f"secret-{next(COUNT) * 7919:08}", "at": time}

    def _sync(self, records: list[dict[str, Any]], partition: str | None, **more: Any) -> int:
        done = self.lake.sync(self.users, *records, value=next(COUNT), partition=partition, **more)
        return done.suppressed

    # What must be there

    def is_rejected(self, record: dict[str, Any]) -> bool:
        return self.has_key and record["id"] is None

    def key_of(self, record: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(record[name] for name in self.users.key_columns)

    def rows(self) -> list[str]:
        """The texts that the table must have: of each key and partition, the newest record's."""
        good = [record for record in self.records if not self.is_rejected(record)]
        if not self.has_key:
            return sorted(record["text"] for record in good)
        newest = {(self.key_of(record), record["partition"]): record for record in good}
        return sorted(record["text"] for record in newest.values())

    def leave_out_keys(self, keys: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
        """Leave out what has one of some keys, and return it."""
        gone = [record for record in self.records if self.key_of(record) in keys]
        self.records = [record for record in self.records if record not in gone]
        return gone

    def leave_out(self, groups: set[int]) -> list[dict[str, Any]]:
        """Leave out what a condition on `group` erases, and return it."""
        present = set(self.rows())
        selected = [
            record
            for record in self.records
            if record["group"] in groups
            and (record["text"] in present or self.lake.history or self.is_rejected(record))
        ]
        keys = {self.key_of(record) for record in selected if not self.is_rejected(record)}
        gone = [
            record
            for record in self.records
            if (record in selected and (not self.has_key or self.is_rejected(record)))
            or (self.has_key and not self.is_rejected(record) and self.key_of(record) in keys)
        ]
        self.records = [record for record in self.records if record not in gone]
        return gone

    # Erasures

    def erase(self, select: Select, *, suppresses: bool, kill: int | None = None) -> None:
        death = Death(number=kill or 10**6)
        with contextlib.suppress(Killed), armed(death):
            self._erase(select, suppresses=suppresses)
        if death.point is not None:
            self._erase(select, suppresses=suppresses)

    def _erase(self, select: Select, *, suppresses: bool) -> None:
        place = self.lake.table.storage.location
        erasure = Erasure(self.lake.provider, place, APP, self.users, f"erasure-{next(COUNT)}")
        erase(erasure, select(erasure), KeyLog(*SALT, suppresses))

    def select_groups(self, groups: set[int]) -> Select:
        condition = check_condition(f"`group` in ({', '.join(map(str, sorted(groups)))})")
        return lambda erasure: Selection(erasure.key, condition)

    def select_keys(self, keys: list[tuple[Any, ...]]) -> Select:
        """Select keys by a file, as `--keys` does."""
        path, fields = self.lake.folder / "keys.jsonl", self.users.key
        names = self.users.key_columns
        path.write_text(
            "".join(json.dumps(dict(zip(names, key, strict=True))) + "\n" for key in keys)
        )

        def select(erasure: Erasure) -> Selection:
            schema = erasure.main.arrow_schema()
            table = read_keys(path, erasure.key, fields, schema, lambda _, value: value)
            return Selection(erasure.key, keys=table)

        return select

    def check(self) -> None:
        assert texts_of(self.lake.uri) == self.rows()
        rejected = [record["text"] for record in self.records if self.is_rejected(record)]
        letter = Path(f"{self.lake.uri}_dead_letter")
        if letter.exists():
            records = read(letter)["record"].to_pylist()
            assert len(records) == len(rejected)
            assert all(any(text in record for record in records) for text in rejected)
        if self.lake.history:
            good = [record for record in self.records if not self.is_rejected(record)]
            versions = {(self.key_of(record), record["at"]): record["text"] for record in good}
            assert texts_of(f"{self.lake.uri}_history") == sorted(versions.values())


def read(table: str | Path) -> pa.Table:
    delta = DeltaTable(str(table))
    return (
        pa.table(delta.to_pyarrow_table())
        if delta.file_uris()
        else pa.schema(delta.schema().to_arrow()).empty_table()
    )


def texts_of(table: str) -> list[str]:
    return sorted(read(table)["text"].to_pylist())


def check_seed(provider: SparkProvider, folder: Path, number: int, *, kills: bool) -> None:
    chance = random.Random(number)
    example = Example(Lake(provider, folder), chance)
    example.fill()
    example.check()
    suppresses = example.has_key and chance.random() < 0.5
    good = [record for record in example.records if not example.is_rejected(record)]
    if example.has_key and good and chance.random() < 0.5:
        keys = [example.key_of(record) for record in chance.sample(good, min(len(good), 2))]
        select, gone = example.select_keys(keys), example.leave_out_keys(keys)
    else:
        groups = set(chance.sample([1, 2, 3], chance.choice([1, 2])))
        select, gone = example.select_groups(groups), example.leave_out(groups)
    example.erase(select, suppresses=suppresses, kill=chance.randint(1, 25) if kills else None)
    example.check()
    for record in gone[:2]:
        assert not find_value(record["text"], *folder.glob("users*")), number
    again = [record for record in gone if not example.is_rejected(record)]
    partition = example.partitions[0]
    sent = [
        {name: value for name, value in record.items() if name != "partition"} for record in again
    ]
    if sent:
        suppressed = example._sync(sent, partition, key_salt=lambda: SALT)
        assert suppressed == (len(sent) if suppresses else 0)
        if not suppresses:
            example.records += [{**record, "partition": partition} for record in sent]
        example.check()


@pytest.mark.parametrize("number", range(4))
def test_exactly_the_selected_rows_are_gone(
    spark_provider: SparkProvider, tmp_path: Path, number: int
) -> None:
    check_seed(spark_provider, tmp_path, number, kills=False)


@pytest.mark.long
@pytest.mark.parametrize("number", seeds_of_long_form())
def test_exactly_the_selected_rows_are_gone_after_a_kill(
    spark_provider: SparkProvider, tmp_path: Path, number: int
) -> None:
    check_seed(spark_provider, tmp_path, number, kills=True)
