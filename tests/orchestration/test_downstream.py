"""Assets downstream of a stream with partitions: one partition in, one partition replaced."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest

from tests.orchestration.days import DAILY, DAYS, FIRST, SECOND, THIRD
from tests.programs.windowed_source import windowed
from tests.support.project import Project
from tests.support.runs import failure_of, fetch_materializations, materialize

READINGS = 'key:"weather/readings"'
STATIONS: Any = {"type": "static", "keys": ["north", "south"], "bind": "station"}

pytestmark = pytest.mark.usefixtures("spark")


def readings(mapping: dg.PartitionMapping | None = None) -> dict[str, dg.AssetIn]:
    return {"rows": dg.AssetIn(["weather", "readings"], partition_mapping=mapping)}


@dg.asset(ins=readings(), partitions_def=DAYS, io_manager_key="io_manager")
def totals(rows: Any) -> Any:
    return rows.groupBy("station").sum("value").withColumnRenamed("sum(value)", "total")


@dg.asset(
    name="totals",
    ins=readings(),
    partitions_def=DAYS,
    io_manager_key="io_manager",
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def totals_of_a_range(rows: Any) -> Any:
    sums = rows.groupBy("_elt_partition", "station").sum("value")
    return sums.withColumnRenamed("sum(value)", "total")


def total_of(project: Project) -> dict[str, int]:
    """The stations' totals by partition; both stations measure the same."""
    rows = project.rows("totals")
    totals = {row["_elt_partition"]: row["total"] for row in rows}
    assert len(rows) == 2 * len(totals)
    return totals


def materialize_both(project: Project, asset: Any, **how: Any) -> Any:
    return materialize(project, f'{READINGS} or key:"totals"', [asset], **how)


def test_a_downstream_asset_replaces_one_partition(own: Project) -> None:
    windowed(own, partitions=DAILY)
    for day in (FIRST, SECOND):
        assert materialize_both(own, totals, partition=day).success
    assert total_of(own) == {FIRST: 276, SECOND: 276}
    own.reconfigure("weather", factor=10)
    assert materialize_both(own, totals, partition=FIRST).success
    assert total_of(own) == {FIRST: 2760, SECOND: 276}
    by_day = fetch_materializations(own, "totals")
    assert {day: metadata["dagster/row_count"] for day, metadata in by_day.items()} == {
        FIRST: 2,
        SECOND: 2,
    }
    assert by_day[FIRST]["elt/table_rows"] == 4


def test_a_range_of_partitions_can_be_stored_in_one_run(own: Project) -> None:
    windowed(own, partitions=DAILY)
    assert materialize(own, READINGS, partition=FIRST, through=THIRD).success
    text = failure_of(materialize(own, 'key:"totals"', [totals], partition=FIRST, through=SECOND))
    assert "`_elt_partition`" in text and "multi_run(1)" in text
    both = {"partition": FIRST, "through": SECOND}
    assert materialize(own, 'key:"totals"', [totals_of_a_range], **both).success
    assert total_of(own) == {FIRST: 276, SECOND: 276}
    assert set(fetch_materializations(own, "totals")) == {FIRST, SECOND}
    # A single partition of the same table, then all of them.
    assert materialize(own, 'key:"totals"', [totals], partition=THIRD).success
    assert total_of(own) == {FIRST: 276, SECOND: 276, THIRD: 276}
    both = {"partition": FIRST, "through": THIRD}
    assert materialize(own, 'key:"totals"', [totals_of_a_range], **both).success
    assert total_of(own) == {FIRST: 276, SECOND: 276, THIRD: 276}


def test_partition_mappings_are_applied(own: Project) -> None:
    partitions: dict[str, set[str]] = {}

    def looks(name: str, mapping: dg.PartitionMapping | None, **how: Any) -> Any:
        def look(rows: Any) -> None:
            partitions[name] = {row["_elt_partition"] for row in rows.collect()}

        return dg.asset(name=name, ins=readings(mapping), **how)(look)

    window = dg.TimeWindowPartitionMapping(start_offset=-1)
    daily = [
        looks("same", dg.IdentityPartitionMapping(), partitions_def=DAYS),
        looks("window", window, partitions_def=DAYS),
        looks("all", dg.AllPartitionMapping(), partitions_def=DAYS),
    ]
    windowed(own, partitions=DAILY)
    assert materialize(own, READINGS, partition=FIRST, through=THIRD).success
    select = 'key:"same" or key:"window" or key:"all"'
    assert materialize(own, select, daily, partition=THIRD).success
    assert partitions == {
        "same": {THIRD},
        "window": {SECOND, THIRD},
        "all": {FIRST, SECOND, THIRD},
    }
    unpartitioned = [looks("whole", None), looks("last", dg.LastPartitionMapping())]
    assert materialize(own, 'key:"whole" or key:"last"', unpartitioned).success
    assert (partitions["whole"], partitions["last"]) == ({FIRST, SECOND, THIRD}, {THIRD})

    # Files of partitions that an asset does not ask for are not read: they may even be gone.
    actions = own.table("weather", "readings").get_add_actions(flatten=True)
    names = ("path", "min._elt_partition")
    for path, partition in zip(*(actions.column(name).to_pylist() for name in names), strict=True):
        if partition != SECOND:
            (own.home / "lake" / "weather" / "readings" / path).unlink()
    assert materialize(own, 'key:"same"', daily, partition=SECOND).success
    assert partitions["same"] == {SECOND}


def test_a_downstream_asset_may_be_partitioned_by_key(own: Project) -> None:
    @dg.asset(
        name="totals",
        ins=readings(),
        partitions_def=dg.StaticPartitionsDefinition(STATIONS["keys"]),
        io_manager_key="io_manager",
    )
    def by_station(rows: Any) -> Any:
        return rows.groupBy("station").count()

    windowed(own, config={"to": "2026-01-02"}, partitions=STATIONS)
    for station in ("north", "south"):
        assert materialize_both(own, by_station, partition=station).success
    expected = [
        {"_elt_partition": station, "count": 24, "station": station}
        for station in ("north", "south")
    ]
    assert own.rows("totals") == expected


def test_partitions_are_refused_for_a_table_without_partitions(own: Project) -> None:
    @dg.asset(name="totals", ins=readings(), io_manager_key="io_manager")
    def of_all(rows: Any) -> Any:
        return rows.groupBy("station").count()

    windowed(own, partitions=DAILY)
    assert materialize(own, READINGS, partition=FIRST).success
    assert materialize(own, 'key:"totals"', [of_all]).success
    before = own.rows("totals")
    text = failure_of(materialize(own, 'key:"totals"', [totals], partition=FIRST))
    assert "move the table away" in text
    assert own.rows("totals") == before
