"""Whatever happens to a table: the format `elt` has the rows of each version, and the sum of its stream.

The histories are those of `modelled.py`. Its readers are called as Spark calls them, with each object pickled
between planning and reading; `test_spark_source.py` reads with Spark.
"""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Iterator
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from hypothesis.stateful import invariant, run_state_machine_as_test

from elt_assets.errors import ConfigError
from elt_assets.lake.delta.opening import is_table
from elt_assets.lake.read.lake_reference import LakeReference
from elt_assets.lake.read.snapshots import scan
from elt_assets.lake.write.companions import SUFFIXES
from elt_assets.lake.write.paths import TablePath
from elt_assets.storage.location import Location
from pyspark_elt import DefaultSource
from tests.lake.modelled import THEMES, Machine
from tests.lake.plain import SMALL_COMMITS, without_spark
from tests.lake.staging import APP
from tests.lake.test_commit_model import bounded

pytestmark = pytest.mark.spark

Rows = Counter[str]
BROKEN = ("moved away", "was restored", "other types", "a vacuum has removed", "cannot be opened")


def send(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def texts_of(batches: Iterator[pa.RecordBatch]) -> Rows:
    """Return rows as texts; without nulls, which a later column has in all rows before it."""
    rows = (row for batch in batches for row in batch.to_pylist())
    known = ({name: value for name, value in row.items() if value is not None} for row in rows)
    return Counter(json.dumps(row, default=str, sort_keys=True) for row in known)


def source(lake: LakeReference, suffix: str, **options: str) -> DefaultSource:
    """Open the table as Spark does, with the class that `register` makes."""
    registered = DefaultSource({"path": f"shop/users{suffix}", **options})
    registered.lake = lake.to_document()
    return registered


def read(lake: LakeReference, suffix: str, **options: str) -> Rows:
    opened = source(lake, suffix, **options)
    schema = opened.schema()
    reader = send(opened).reader(schema)
    parts = send(reader.partitions())
    return sum((texts_of(send(reader).read(part)) for part in parts), Rows())


class Follower:
    """A query that keeps the rows of a table by the changes that it gets."""

    def __init__(self, lake: LakeReference, suffix: str):
        self.lake, self.suffix = lake, suffix
        self.restart()

    def restart(self) -> None:
        """Begin with a new checkpoint."""
        self.rows = Rows()
        self.offset: dict[str, Any] | None = None

    def try_to_follow(self) -> ConfigError | None:
        """Follow the table; return the error if that is not possible."""
        try:
            self.follow()
        except ConfigError as error:
            return error
        return None

    def follow(self) -> None:
        opened = source(self.lake, self.suffix, deletes="rows")
        stream = send(opened).streamReader(opened.schema())
        start = stream.initialOffset() if self.offset is None else self.offset
        end = json.loads(json.dumps(stream.latestOffset()))
        for part in send(stream.partitions(start, end)):
            for batch in send(stream).read(part):
                kinds = batch.column("_change_type").to_pylist()
                [kind] = set(kinds)
                changed = texts_of(iter([batch.drop_columns("_change_type")]))
                self.rows.update(changed) if kind == "insert" else self.rows.subtract(changed)
        self.offset = end


class FollowedMachine(Machine):
    """A table that is followed, and so are its companions."""

    restarts: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        paths: dict[tuple[str, ...], TablePath] = {
            ("shop", "users"): TablePath(("users",), ("elsewhere",))
        }
        self.reference = LakeReference(str(self.folder), streams=paths)
        self.followers: dict[str, Follower] = {}

    @invariant()
    def the_format_has_the_rows(self) -> None:
        for suffix in ("", *SUFFIXES.values()):
            place = f"{self.uri}{suffix}"
            if not is_table(Location(place)):
                continue
            expected = texts_of(scan(place, f"{APP}{suffix}").batches())
            assert read(self.reference, suffix) == expected
            follower = self.followers.setdefault(suffix, Follower(self.reference, suffix))
            broken = follower.try_to_follow()
            if broken is not None:
                [reason] = [text for text in BROKEN if text in broken.message]
                self.restarts[reason] += 1
                assert "start the query with a new checkpoint" in (broken.guidance or "")
                follower.restart()
                follower.follow()
            kept = +follower.rows
            assert kept == expected and not -follower.rows, (kept - expected, expected - kept)


@pytest.mark.parametrize(
    "name", ["syncs", "maintenance", "histories", "restores", "schemas", "refreshes"]
)
def test_a_version_has_its_rows_and_a_stream_their_sum(name: str) -> None:
    machine = type("Machine", (FollowedMachine,), {"theme": THEMES[name]})
    with without_spark(SMALL_COMMITS):
        run_state_machine_as_test(machine, settings=bounded(6, 8, repeats=True))


@pytest.mark.long
def test_a_version_has_its_rows_and_a_stream_their_sum_in_long_runs() -> None:
    machine = type("Machine", (FollowedMachine,), {"theme": THEMES["all"]})
    with without_spark(SMALL_COMMITS):
        run_state_machine_as_test(machine, settings=bounded(400, 15, repeats=False))
    assert set(FollowedMachine.restarts) >= {"was restored", "other types", "a vacuum has removed"}
