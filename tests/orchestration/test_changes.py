"""Incremental assets downstream: the rows of a table since the last materialisation."""

# No `from __future__ import annotations`: Dagster inspects the annotations of the assets.

import shutil
from collections.abc import Sequence
from typing import Any, NamedTuple

import dagster as dg
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

import elt_assets
from elt_assets.orchestration.table_reading import Changes
from tests.orchestration.days import DAILY, DAYS, FIRST, SECOND, THIRD
from tests.programs.scripted import record, script, state
from tests.programs.windowed_source import windowed
from tests.support.project import Project
from tests.support.runs import failure_of, materialize

pytestmark = pytest.mark.usefixtures("spark")

THINGS, READINGS = ["scripted", "things"], ["weather", "readings"]
SOURCE = 'key:"scripted/things"'
DELETED_AT = "_ab_cdc_deleted_at"
SCHEMA = {
    "id": {"type": "integer"},
    "name": {"type": "string"},
    DELETED_AT: {"type": "string"},
}
DEDUP: Any = {"schema": SCHEMA, "destination_sync_mode": "append_dedup", "primary_key": [["id"]]}


class Seen(NamedTuple):
    """What an asset got: why it got all rows, the new rows' names by id, and the deleted ones'."""

    reason: str | None
    rows: dict[int, str]
    deleted: dict[int, str]


def names_by_id(frame: Any) -> dict[int, str]:
    rows = frame.toArrow() if isinstance(frame, DataFrame) else frame
    rows = rows if isinstance(rows, pa.Table) else rows.lazy().collect().to_arrow()
    names = dict(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True))
    assert len(names) == len(rows)
    return names


class Follower:
    """An asset downstream that notes the changes that it gets."""

    def __init__(self, form: Any, name: str = "follower"):
        self.name = name
        self.form = form
        self.seen: list[Seen] = []
        self.fails = False

    @property
    def asset(self) -> Any:
        def follow(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
            new = elt_assets.changes(context, THINGS, form=self.form, columns=["name", "id"])
            self.seen.append(Seen(new.reason, names_by_id(new.rows), names_by_id(new.deleted)))
            if self.fails:
                raise ValueError("a failure after the rows were read")
            return dg.MaterializeResult(metadata={"rows": len(self.seen[-1].rows)})

        return dg.asset(name=self.name, deps=[THINGS])(follow)

    def follow(self, project: Project) -> Seen:
        """Materialise the asset, and return what it got."""
        result = materialize(project, f'key:"{self.name}"', [self.asset])
        assert result.success != self.fails
        return self.seen[-1]


def sync(project: Project, *rows: dict[str, Any], **how: Any) -> None:
    script(project, [*(record(**row) for row in rows), state(1)], **how)
    assert materialize(project, SOURCE).success


def test_each_environment_of_a_home_has_a_position_of_its_own(
    own: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = Follower(pl.DataFrame)
    for rows in ([{"id": 1, "name": "a"}], [{"id": 2, "name": "b"}]):
        for lake in ("dev", "prod"):
            monkeypatch.setenv("ELT_LAKE", str(own.root / lake))
            sync(own, *rows, destination_sync_mode="append")
            seen = follower.follow(own)
            assert (seen.reason is None) == (rows[0]["id"] == 2), seen
            assert seen.rows == {rows[0]["id"]: rows[0]["name"]}


def test_an_asset_gets_the_rows_since_its_last_success(own: Project) -> None:
    follower = Follower(pl.DataFrame)
    sync(own, {"id": 1, "name": "a"}, {"id": 2, "name": "b"})
    assert follower.follow(own) == ("it is the first read", {1: "a", 2: "b"}, {})
    assert follower.follow(own) == (None, {}, {})
    position = own.metadata("follower")["elt/position/scripted/things"]
    assert position["version"] == own.table(*THINGS).version()

    sync(own, {"id": 3, "name": "c"})
    follower.fails = True
    assert follower.follow(own) == (None, {3: "c"}, {})
    sync(own, {"id": 4, "name": "d"})
    follower.fails = False
    assert follower.follow(own) == (None, {3: "c", 4: "d"}, {})

    own.table(*THINGS).optimize.compact()  # by another engine
    assert follower.follow(own) == (None, {}, {})
    sync(own, {"id": 5, "name": "e"})
    assert follower.follow(own) == (None, {5: "e"}, {})


@pytest.mark.parametrize("form", [DataFrame, pl.LazyFrame], ids=["spark", "polars"])
def test_updates_and_deletes_are_told_apart(own: Project, form: Any) -> None:
    follower = Follower(form)
    sync(own, *({"id": n, "name": "a"} for n in range(1, 5)), **DEDUP)
    assert follower.follow(own).reason == "it is the first read"
    deleted = {"id": 2, DELETED_AT: "2026-01-01"}
    sync(own, {"id": 1, "name": "b"}, deleted, {"id": 5, "name": "a"}, **DEDUP)
    assert follower.follow(own) == (None, {1: "b", 5: "a"}, {2: "a"})
    sync(own, {"id": 1, "name": "c"}, **DEDUP)
    sync(own, {"id": 1, "name": "d"}, {"id": 3, DELETED_AT: "2026-01-01"}, **DEDUP)
    assert follower.follow(own) == (None, {1: "d"}, {3: "a"})


def test_a_table_that_was_replaced_is_read_again(own: Project) -> None:
    follower, table = Follower(pa.Table), own.home / "lake" / "scripted" / "things"
    sync(own, {"id": 1, "name": "a"}, {"id": 2, "name": "a"}, **DEDUP)
    follower.follow(own)
    first = own.table(*THINGS).version()

    script(own, [record(id=1, name="b"), state(1)], **DEDUP)
    assert materialize(own, SOURCE, refresh="truncate").success
    assert follower.follow(own) == ("the rows of the table were replaced", {1: "b"}, {})

    before = set(own.table(*THINGS).file_uris())
    sync(own, {"id": 1, "name": "c"}, **DEDUP)
    for path in before:  # as a vacuum does
        (table / path.removeprefix(f"{table}/")).unlink()
    seen = follower.follow(own)
    assert seen.reason and "vacuum" in seen.reason and seen.rows == {1: "c"}

    shutil.move(table, own.root / "away")
    sync(own, {"id": 7, "name": "z"}, **DEDUP)
    seen = follower.follow(own)
    assert seen.reason and "moved away" in seen.reason and seen.rows == {7: "z"}

    sync(own, {"id": 8, "name": "z"}, **DEDUP)
    assert follower.follow(own) == (None, {8: "z"}, {})
    own.table(*THINGS).restore(first)
    assert follower.follow(own).reason == "the table was restored to an earlier version"


def test_changes_of_partitions_are_read_by_partition(own: Project) -> None:
    seen: list[tuple[str | None, frozenset[str], int, int]] = []

    def note(context: dg.AssetExecutionContext) -> None:
        new: Changes[pl.DataFrame] = elt_assets.changes(
            context, "weather/readings", form=pl.DataFrame
        )
        assert not len(new.deleted)
        total = int(new.rows["value"].sum())
        seen.append((new.reason, new.reloaded_partitions, len(new.rows), total))

    daily = dg.asset(name="daily", deps=[READINGS], partitions_def=DAYS)(note)
    whole = dg.asset(name="whole", deps=[READINGS])(note)

    def follow(name: str, **how: Any) -> Sequence[Any]:
        assert materialize(own, f'key:"{name}"', [daily, whole], **how).success
        return seen[-1]

    nothing: frozenset[str] = frozenset()
    windowed(own, partitions=DAILY, partition_by=["station"])
    readings = 'key:"weather/readings"'
    assert materialize(own, readings, partition=FIRST).success
    assert own.table(*READINGS).metadata().partition_columns == ["station"]
    assert follow("whole") == ("it is the first read", nothing, 48, 552)
    assert follow("daily", partition=FIRST) == ("it is the first read", nothing, 48, 552)
    together = f'{readings} or key:"whole"'  # an asset without partitions, in a run of one
    assert materialize(own, together, [whole], partition=SECOND).success
    assert seen[-1] == (None, nothing, 48, 552)
    assert follow("daily", partition=FIRST) == (None, nothing, 0, 0)
    assert follow("daily", partition=SECOND) == ("it is the first read", nothing, 48, 552)

    own.reconfigure("weather", factor=10)
    assert materialize(own, readings, partition=FIRST).success
    assert materialize(own, readings, partition=THIRD).success
    assert follow("whole") == (None, {FIRST}, 96, 11_040)
    replaced = "the rows of the partition were replaced"
    assert follow("daily", partition=FIRST) == (replaced, nothing, 48, 5_520)
    assert follow("daily", partition=SECOND) == (None, nothing, 0, 0)

    several = dg.asset(
        name="daily",
        deps=[READINGS],
        partitions_def=DAYS,
        backfill_policy=dg.BackfillPolicy.single_run(),
    )(note)
    for reason, rows in (("it is the first read", 48), (None, 0)):
        assert materialize(own, 'key:"daily"', [several], partition=THIRD, through=THIRD).success
        assert seen[-1][0] == reason and seen[-1][2] == rows
    text = failure_of(materialize(own, 'key:"daily"', [several], partition=FIRST, through=THIRD))
    assert "multi_run(1)" in text


def test_changes_that_cannot_be_read_are_refused(own: Project) -> None:
    def fail(upstream: Any, deps: Any, **how: Any) -> str:
        def follow(context: dg.AssetExecutionContext) -> None:
            elt_assets.changes(context, upstream, **how)

        return failure_of(
            materialize(own, 'key:"asset"', [dg.asset(name="asset", deps=deps)(follow)])
        )

    script(own, [record(id=1), state(1)])
    assert "materialise it first" in fail(THINGS, [THINGS], form=pl.DataFrame)
    assert materialize(own, SOURCE).success
    assert "does not depend on it" in fail("scripted/thing", [THINGS])
    assert "has no column 'ID'" in fail(THINGS, [THINGS], form=pl.DataFrame, columns=["ID"])
    assert "in which no table can be read" in fail(THINGS, [THINGS], form=dict)
