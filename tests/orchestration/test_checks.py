"""The checks of a stream, after a sync and by themselves."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest
from deltalake import write_deltalake

from elt_assets import paths
from elt_assets.connection.checks import Checks
from elt_assets.definitions import build
from elt_assets.orchestration import states
from tests.orchestration.test_run_config import asset, instance
from tests.programs.scripted import record, script, state, status
from tests.programs.windowed_source import windowed
from tests.support.project import Project
from tests.support.runs import evaluations, failure_of, materialize

LIVE: Any = {"sync_mode": "incremental", "destination_sync_mode": "append_dedup"}
THINGS = 'key:"scripted/things"'
KEY = 'key:"weather/readings"'
HEALTH = {"small_files", "vacuum_debt", "log_length"}
"""The checks of the health of a table without `cluster_by`."""
WARN, ERROR = dg.AssetCheckSeverity.WARN, dg.AssetCheckSeverity.ERROR

pytestmark = pytest.mark.usefixtures("spark")


def alone(project: Project, *key: str) -> dict[str, dg.AssetCheckEvaluation]:
    """The checks of a stream, run without a sync."""
    selection = dg.AssetSelection.checks_for_assets(dg.AssetKey(list(key)))
    job = dg.define_asset_job("checks", selection=selection)
    definitions = dg.Definitions.merge(build(), dg.Definitions(jobs=[job]))
    with instance(project) as dagster:
        result = definitions.resolve_job_def("checks").execute_in_process(instance=dagster)
    assert not result.get_asset_materialization_events()
    return evaluations(result)


def select_failed(results: dict[str, dg.AssetCheckEvaluation]) -> set[str]:
    return {name for name, evaluation in results.items() if not evaluation.passed}


def test_all_checks_of_a_correct_stream_pass(own: Project) -> None:
    windowed(own, config={"to": "2026-01-02"}, **LIVE)
    results = evaluations(materialize(own, KEY))
    assert select_failed(results) == set()
    assert set(results) == {
        "counts", "completed", "primary_key", "changed", "rejected", "columns", "cursor", *HEALTH,
    }  # fmt: skip
    assert results["counts"].metadata["source"].value == 48
    assert results["primary_key"].metadata["rows"].value == 48


def test_checks_can_be_run_without_a_sync(own: Project) -> None:
    windowed(own, config={"to": "2026-01-02"}, **LIVE)
    assert materialize(own, KEY).success
    assert select_failed(alone(own, "weather", "readings")) == set()
    table = own.table("weather", "readings")
    twice = table.to_pyarrow_table().slice(0, 1)
    write_deltalake(table, twice, mode="append")
    results = alone(own, "weather", "readings")
    assert select_failed(results) == {"primary_key"}
    assert results["primary_key"].description == "1 keys have more than one row"
    assert (results["primary_key"].severity, results["rejected"].severity) == (ERROR, WARN)


def test_checks_pass_before_the_first_sync(own: Project) -> None:
    windowed(own, **LIVE)
    assert select_failed(alone(own, "weather", "readings")) == set()


def test_counts_that_differ_from_the_source_fail_the_check(own: Project) -> None:
    lines = [record(id=1), record(id=2), state(2, records=2), record(id=3), status("COMPLETE")]
    script(own, [status("STARTED"), *lines])
    results = evaluations(materialize(own, THINGS))
    assert select_failed(results) == {"counts"}
    assert results["counts"].description == "the source reports 2 records; 3 were read"


@pytest.mark.spec("protocol.135")
def test_a_state_with_a_wrong_record_count_fails_the_sync(own: Project) -> None:
    script(own, [record(id=1), state(1, records=1), record(id=2), state(2, records=2)])
    assert "reports 2 records before its state, but 1 were received" in failure_of(
        materialize(own, THINGS)
    )
    assert [row["id"] for row in own.rows("scripted", "things")] == [1]
    assert own.committed_state("scripted", "things")["stream"]["stream_state"] == {"cursor": 1}


def test_missing_counts_and_statuses_do_not_fail_checks(own: Project) -> None:
    script(own, [record(id=1), state(1)])
    results = evaluations(materialize(own, THINGS))
    assert select_failed(results) == set()
    assert "does not report" in str(results["counts"].description)
    assert "no status" in str(results["completed"].description)


def test_the_share_of_changed_records_is_compared_with_its_limit(own: Project) -> None:
    script(own, [record(id=1), record(id="?"), record(id=3), state(3)])
    results = evaluations(materialize(own, THINGS))
    assert select_failed(results) == {"changed"}
    assert results["changed"].metadata["share"].value == pytest.approx(1 / 3)
    own.amend("scripted", checks={"changed": {"max": 0.5}, "columns": False})
    results = evaluations(materialize(own, THINGS))
    assert select_failed(results) == set()
    assert "columns" not in results


def test_the_share_of_rejected_records_is_compared_with_its_limit(own: Project) -> None:
    lines = [record(id=None, name="x"), record(id=1), state(1)]
    keyed: Any = {"destination_sync_mode": "append_dedup", "primary_key": [["id"]]}
    script(own, lines, **keyed)
    results = evaluations(materialize(own, THINGS))
    assert select_failed(results) == {"rejected"}
    assert results["rejected"].description == "50.00% of the records read; the limit is 0.00%"


def test_columns_that_differ_from_the_catalog_fail_the_check(own: Project) -> None:
    schema = {"id": {"type": "integer"}, "name": {"type": "string"}, "more": {"type": "string"}}
    script(own, [record(id=1), state(1)], on_schema_change="freeze")
    assert select_failed(evaluations(materialize(own, THINGS))) == set()
    script(own, [record(id=2), state(2)], schema=schema, on_schema_change="freeze")
    results = evaluations(materialize(own, THINGS))
    assert select_failed(results) == {"columns"}
    assert "more" in str(results["columns"].description)


def test_a_decreasing_cursor_fails_the_check(own: Project) -> None:
    script(own, [record(id=5), state(5, field="id")])
    assert select_failed(evaluations(materialize(own, THINGS))) == set()
    script(own, [record(id=4), state(4, field="id")])
    results = evaluations(materialize(own, THINGS))
    assert select_failed(results) == {"cursor"}
    assert results["cursor"].description == "from 5.0 to 4.0"


def test_a_state_that_the_user_set_back_does_not_fail_the_cursor_check(own: Project) -> None:
    windowed(own, config={"to": "2026-01-03"}, **LIVE)
    assert materialize(own, KEY).success
    with instance(own) as dagster:
        first = {"at": "2026-01-01T05:00:00+00:00"}
        states.set_state(asset(own), paths.lake(), first, dagster)
    own.reconfigure("weather", to="2026-01-02")
    assert select_failed(evaluations(materialize(own, KEY))) == set()


def test_check_settings_of_a_connection_apply_to_its_streams(own: Project) -> None:
    windowed(own, **LIVE, checks={"cursor": False, "counts": {"severity": "warn"}})
    own.amend("weather", checks={"cursor": True, "columns": False, "rejected": {"max": 0.2}})
    graph = build().resolve_asset_graph()
    assert {key.name for key in graph.asset_check_keys} == {
        "counts", "completed", "primary_key", "changed", "rejected", *HEALTH,
    }  # fmt: skip


def test_settings_of_a_stream_override_single_check_settings_of_its_connection() -> None:
    general = Checks.model_validate({"changed": {"max": 0.05}, "columns": True})
    own = Checks.model_validate({"changed": {"severity": "error"}, "cursor": False})
    checks = own.over(general)
    assert (checks.changed.max, checks.changed.severity) == (0.05, "error")
    assert (checks.columns.enabled, checks.columns.severity) == (True, "warn")
    assert (checks.cursor.enabled, checks.cursor.severity) == (False, "warn")
    assert (checks.rejected.max, checks.counts.severity) == (0.0, "error")


def test_a_numeric_text_is_compared_as_a_number(own: Project) -> None:
    script(own, [record(id=999), state("999", field="id")])
    assert select_failed(evaluations(materialize(own, THINGS))) == set()
    script(own, [record(id=1000), state("1000", field="id")])
    assert select_failed(evaluations(materialize(own, THINGS))) == set()


def test_maintenance_ends_what_the_checks_of_health_warn_of(own: Project) -> None:
    """The checks name the job; after it, their newest results have passed."""
    checks: Any = {"small_files": {"max": 1}, "unsorted": {"max": 0}, "vacuum_debt": False}
    own_stream = {"destination_sync_mode": "append", "cluster_by": ["id"], "checks": checks}
    for number in range(3):
        script(own, [record(id=number), state(number)], **own_stream)
        results = evaluations(materialize(own, THINGS))
    failed = {"small_files", "unsorted"}
    assert select_failed(results) == failed and "vacuum_debt" not in results
    for name in failed:
        assert results[name].severity is WARN
        assert "maintenance (`elt_maintenance`)" in str(results[name].description)
    assert results["small_files"].metadata["things"].value == 3
    with instance(own) as dagster:
        job = build().resolve_job_def("elt_maintenance")
        assert job.execute_in_process(instance=dagster).success
        keys = [dg.AssetCheckKey(dg.AssetKey(["scripted", "things"]), name) for name in failed]
        newest = dagster.event_log_storage.get_latest_asset_check_execution_by_key(keys)
        for key in keys:
            event = newest[key].event
            assert event is not None and event.dagster_event is not None
            assert event.dagster_event.asset_check_evaluation_data.passed, key
