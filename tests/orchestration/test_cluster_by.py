"""`cluster_by` of a stream: `elt_maintenance` sorts its table."""

from __future__ import annotations

from typing import Any

import pytest

from tests.orchestration.test_automation import refuse
from tests.orchestration.test_checks import THINGS
from tests.orchestration.ticking import run_job
from tests.programs.scripted import record, script, state
from tests.support.project import Project
from tests.support.runs import materialize, read_log

TEXT = {"type": "string"}
SCHEMA: dict[str, Any] = {
    "id": {"type": "integer"},
    "address": {"type": "object", "properties": {"zip.code": TEXT}},
    "tags": {"type": "array", "items": TEXT},
}


@pytest.mark.usefixtures("spark")
def test_maintenance_sorts_the_table_of_a_stream(own: Project) -> None:
    lines = [record(id=n, address={"zip.code": f"{n * 7 % 10}"}) for n in range(10)]
    script(own, [*lines, state(1)], schema=SCHEMA, cluster_by=[["address", "zip.code"], "id"])
    assert materialize(own, THINGS).success
    config = {"ops": {"maintain_tables": {"config": {"assets": ["scripted/things"]}}}}
    done = run_job(own, "elt_maintenance", config)
    assert done.success
    assert "1 sorted" in read_log(own, done)
    rows = own.table("scripted", "things").to_pyarrow_table().to_pylist()
    assert [row["address"]["zip_code"] for row in rows] == [str(n) for n in range(10)]


def test_columns_without_an_order_are_refused(own: Project) -> None:
    script(own, [], schema=SCHEMA, cluster_by=["id", "idd", "tags"])
    text = refuse(own)
    assert "cluster_by: there is no column 'idd'; did you mean 'id'?" in text
    assert "cluster_by: 'tags': its values (array<string>) cannot be sorted" in text
    script(own, [], schema=SCHEMA, cluster_by=["id", "id", "id", "id", "id"])
    assert "cluster_by" in refuse(own)
