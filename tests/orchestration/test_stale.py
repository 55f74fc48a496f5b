"""After a sync, Dagster calls none of our assets unsynced or missing."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.loader import LoadingContextForTest

from elt_assets.definitions import build
from elt_assets.errors import ConfigError
from tests.programs.scripted import record, script, state
from tests.programs.windowed_source import windowed
from tests.support.project import Project
from tests.support.runs import fetch_materializations, materialize

KEYED = {"sync_mode": "incremental", "destination_sync_mode": "append_dedup"}
DAILY = {"type": "daily", "start": "2026-01-01", "bind": {"start": "from", "end": "to"}}
STATIONS = {"type": "static", "keys": ["north", "south"], "bind": "station"}
MULTI = {"type": "multi", "window": DAILY, "key": STATIONS}


def find_unsynced(project: Project, partition: str | None = None) -> dict[str, Any]:
    """Return what Dagster says of the executable assets that are not fresh, with the causes."""
    graph = build().resolve_asset_graph()
    with dg.DagsterInstance.from_config(str(project.home)) as instance:
        resolver = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
        marks = {
            key.to_user_string(): (
                resolver.get_status(key, partition).value,
                [cause.reason for cause in resolver.get_stale_causes(key, partition)],
            )
            for key in graph.executable_asset_keys
        }
    return {name: mark for name, mark in marks.items() if mark[0] != "FRESH"}


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("partition", "connection", "stream"),
    [
        (None, {"dead_letter": "asset"}, {**KEYED, "history": True}),
        (None, {"dead_letter": "asset", "read_together": True}, {**KEYED, "history": True}),
        ("2026-01-02", {"dead_letter": "asset"}, {"partitions": DAILY}),
        ("north|2026-01-02", {}, {"partitions": MULTI, "dead_letter": "asset"}),
    ],
    ids=["alone", "together", "partition", "multi"],
)
def test_nothing_is_unsynced_after_a_sync(
    own: Project, partition: str | None, connection: dict[str, Any], stream: dict[str, Any]
) -> None:
    windowed(own, config={} if partition else {"to": "2026-01-02"}, **stream)
    own.amend("weather", **connection)
    assert len(find_unsynced(own, partition)) == (3 if "history" in stream else 2)
    for _ in range(2):  # the second one has a former event of each asset to compare with
        assert materialize(own, 'key:"weather/readings"', partition=partition).success
        assert find_unsynced(own, partition) == {}


@pytest.mark.usefixtures("spark")
def test_an_asset_downstream_is_unsynced_when_the_rows_have_changed(own: Project) -> None:
    @dg.asset(deps=[["weather", "readings"]])
    def report() -> None: ...

    windowed(own, **KEYED, config={"to": "2026-01-02"})
    assert materialize(own, 'key:"weather/readings"+', [report]).success
    file = own.root / "defs" / "report.py"
    file.write_text(
        "import dagster as dg\n@dg.asset(deps=[['weather', 'readings']])\ndef report(): ...\n"
    )
    assert find_unsynced(own) == {}
    assert materialize(own, 'key:"weather/readings"').success
    assert find_unsynced(own) == {}, "no row has come"
    own.reconfigure("weather", to="2026-01-03")
    assert materialize(own, 'key:"weather/readings"').success
    assert list(find_unsynced(own)) == ["report"]


@pytest.mark.usefixtures("spark")
def test_the_dead_letter_is_a_table_that_the_event_and_the_check_name(own: Project) -> None:
    lines = [record(id=1), record(id=None), state(1)]
    script(own, lines, destination_sync_mode="append_dedup", primary_key=[["id"]])
    key = dg.AssetKey(["scripted", "things"])
    assert build().resolve_asset_graph().executable_asset_keys == {key}
    result = materialize(own, 'key:"scripted/things"')
    table = str(own.home / "lake" / "scripted" / "things_dead_letter")
    event = fetch_materializations(own, "scripted", "things")[None]
    assert (
        event["elt/dead_letter"] == table
        and own.table("scripted", "things_dead_letter").count() == 1
    )
    (check,) = [c for c in result.get_asset_check_evaluations() if c.check_name == "rejected"]
    assert check.metadata["elt/dead_letter"].value == table
    own.amend("scripted", dead_letter="asset")
    dead = dg.AssetKey(["scripted", "things_dead_letter"])
    assert build().resolve_asset_graph().executable_asset_keys == {key, dead}


def test_an_asset_of_a_dead_letter_that_is_none_is_refused_with_the_line_to_write(
    own: Project,
) -> None:
    script(own, [])
    file = own.root / "defs" / "watch.py"
    deps = "deps=[['scripted', 'things_dead_letter']]"
    file.write_text(f"import dagster as dg\n@dg.asset({deps})\ndef watch(): ...\n")
    with pytest.raises(
        ConfigError,
        match=r"watch depends on scripted/things_dead_letter(.|\n)*`dead_letter: asset`",
    ):
        build()
    own.amend("scripted", dead_letter="asset")
    assert dg.AssetKey("watch") in build().resolve_asset_graph().executable_asset_keys
    own.amend("scripted", destination={"command": ["x"]})
    with pytest.raises(ConfigError, match="with another `destination` there is no dead letter"):
        build()
