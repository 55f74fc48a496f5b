"""Promise 1: the table's state is used, whatever the event log says."""

from __future__ import annotations

import json
import shutil
from datetime import datetime, timezone

import dagster as dg
import pytest

from elt_assets.lake.delta.table import Table
from tests.programs.scripted import record, script, state
from tests.support.project import Project
from tests.support.runs import materialize, observations, read_log

pytestmark = pytest.mark.usefixtures("spark_provider")


def test_each_checkpoint_is_an_observation_with_its_own_state(own: Project) -> None:
    lines = [[record(id=n), state(n)] for n in range(1, 4)]
    script(own, [line for pair in lines for line in pair])
    own.amend("scripted", checkpoint={"rows": 1})
    assert materialize(own).success
    checkpoints = observations(own, "scripted", "things")
    assert [checkpoint["elt/sequence"] for checkpoint in checkpoints] == [1, 2, 3]
    assert [checkpoint["elt/state"] for checkpoint in checkpoints] == [
        state(n)["state"] for n in range(1, 4)
    ]
    last = own.metadata("scripted", "things")
    assert last["elt/sequence"] == 3
    assert last["elt/state"] == own.committed_state("scripted", "things")


def test_a_deleted_table_is_read_from_the_beginning(own: Project) -> None:
    script(own, [record(id=1), state(1)])
    assert materialize(own).success
    shutil.rmtree(own.home / "lake" / "scripted" / "things")
    result = materialize(own)
    assert result.success
    assert "rolled back or deleted" in read_log(own, result)
    assert [row["id"] for row in own.rows("scripted", "things")] == [1]


def test_a_restore_of_the_table_restores_its_cursor(own: Project) -> None:
    script(own, [record(id=1), state(1)])
    assert materialize(own).success
    script(own, [record(id=2), state(2)])
    assert materialize(own).success
    own.table("scripted", "things").restore(1)

    script(own, [record(id=2), state(2)])
    result = materialize(own)
    assert result.success
    assert "was restored to an older version" in read_log(own, result)
    assert [row["id"] for row in own.rows("scripted", "things")] == [1, 2]


def test_a_sync_without_new_data_makes_no_commit(own: Project) -> None:
    script(own, [record(id=1), state(1)])
    assert materialize(own).success
    version = own.table("scripted", "things").version()
    script(own, [state(1)])
    assert materialize(own).success
    assert own.table("scripted", "things").version() == version
    assert own.metadata("scripted", "things")["elt/records_read"] == 0


def test_a_large_state_is_not_stored_in_the_event_log(own: Project) -> None:
    script(own, [record(id=1), state("x" * 100_000)])
    assert materialize(own).success
    summary = own.metadata("scripted", "things")["elt/state"]
    assert summary["bytes"] > 100_000
    assert own.committed_state("scripted", "things") == state("x" * 100_000)["state"]


def test_a_restore_by_time_restores_the_cursor(own: Project) -> None:
    for number in (1, 2):
        script(own, [record(id=number), state(number)])
        assert materialize(own).success
    table = own.table("scripted", "things")
    (second,) = [entry for entry in table.history() if entry["version"] == 2]
    # Just before the second commit: a fast machine makes it soon after the first.
    table.restore(datetime.fromtimestamp(second["timestamp"] / 1000 - 0.001, tz=timezone.utc))
    assert [row["id"] for row in own.rows("scripted", "things")] == [1]
    head = Table(table.table_uri, "elt:scripted/things").metadata
    assert head.state is not None
    assert json.loads(head.state) == state(1)["state"]


def test_a_rollback_is_reported_only_once(own: Project) -> None:
    own_state = [record(id=1), state(1), record(id=2), state(2), record(id=3), state(3)]
    script(own, own_state)
    own.amend("scripted", checkpoint={"rows": 1})
    assert materialize(own).success
    shutil.rmtree(own.home / "lake" / "scripted" / "things")
    script(own, [record(id=1), state(1)])
    assert "rolled back" in read_log(own, materialize(own))
    assert "rolled back" not in read_log(own, materialize(own))


@pytest.mark.usefixtures("spark")
def test_the_event_of_a_wide_schema_is_stored(own: Project) -> None:
    names = ["id", *(f"a_field_of_a_long_name_{number:04d}" for number in range(400))]
    schema = {name: {"type": "string", "description": "long " * 40} for name in names}
    script(own, [record(**dict.fromkeys(schema, "x")), state("ы" * 14_000)], schema=schema)
    result = materialize(own, 'key:"scripted/things"')
    events = result.get_asset_materialization_events()
    (event,) = (
        candidate
        for candidate in events
        if candidate.asset_key == dg.AssetKey(["scripted", "things"])
    )
    assert len(dg.serialize_value(event.materialization)) < 64 * 1024
    table_schema = event.materialization.metadata["dagster/column_schema"]
    assert isinstance(table_schema, dg.TableSchemaMetadataValue)
    columns = table_schema.schema.columns
    assert columns[0].name == "id"
    assert columns[-1].name == f"… and {405 - len(columns) + 1} more"
