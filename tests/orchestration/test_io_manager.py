"""Downstream of a stream: its rows as a Spark DataFrame."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest

from tests.programs.scripted import record, script, state
from tests.support.project import Project
from tests.support.runs import failure_of, materialize

pytestmark = pytest.mark.usefixtures("spark_provider")


@dg.asset(ins={"things": dg.AssetIn(["scripted", "things"])}, io_manager_key="io_manager")
def doubled(things: Any) -> Any:
    return things.selectExpr("id * 2 AS id")


def test_a_downstream_asset_receives_and_stores_dataframes(own: Project) -> None:
    script(own, [record(id=1), record(id=2), state(2)])
    assert materialize(own, extra=[doubled]).success
    assert [row["id"] for row in own.rows("doubled")] == [2, 4]
    script(own, [record(id=3), state(3)])
    assert materialize(own, extra=[doubled]).success
    assert [row["id"] for row in own.rows("doubled")] == [2, 4, 6]
    assert own.metadata("doubled")["dagster/row_count"] == 3


def test_a_missing_upstream_table_is_an_error_with_guidance(own: Project) -> None:
    script(own, [])
    text = failure_of(materialize(own, select='key:"doubled"', extra=[doubled]))
    assert "materialise it first" in text


def test_a_materialization_has_the_documented_metadata(own: Project) -> None:
    script(own, [record(id=1), record(id="x"), state(1)])
    assert materialize(own).success
    metadata = own.metadata("scripted", "things")
    assert {
        k: metadata[k] for k in metadata if k.startswith("elt/records") and "second" not in k
    } == {
        "elt/records_read": 2,
        "elt/records_committed": 2,
        "elt/records_rejected": 0,
        "elt/records_changed": 1,
    }
    assert metadata["elt/policy"] == "append"
    assert metadata["elt/generation"] == 1
    assert metadata["elt/table_version"] == own.table("scripted", "things").version()
    assert metadata["dagster/row_count"] == 2
    assert metadata["dagster/table_name"] == "scripted.things"
    assert metadata["dagster/uri"] == str(own.home / "lake" / "scripted" / "things")
    assert metadata["dagster/storage_kind"] == "delta"
    assert {"elt/bytes_read", "elt/seconds", "elt/records_per_second"} <= set(metadata)
    own_app = own.table("scripted", "things").transaction_version("elt:scripted/things")
    assert own_app == metadata["elt/sequence"]
