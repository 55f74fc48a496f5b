"""The contract of a stream: at load, during a sync, and as a check of its table."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest

from tests.orchestration.test_automation import refuse
from tests.orchestration.test_checks import THINGS, select_failed
from tests.orchestration.test_singer import connect, names, says, schema
from tests.programs.scripted import record, script, state
from tests.programs.singer_tap import SCHEMA
from tests.programs.singer_tap import record as tap_record
from tests.support.elt import Elt
from tests.support.project import Project
from tests.support.runs import evaluations, failure_of, materialize

TEXT = {"type": "string"}
COLUMNS: dict[str, Any] = {
    "id": {"type": "integer"},
    "at": {**TEXT, "format": "date-time"},
    "address": {"type": "object", "properties": {"city": TEXT, "zip.code": TEXT}},
    "tags": {"type": "array", "items": TEXT},
}
AGREED = {
    "id": "integer",
    "at": "TIMESTAMP",
    "address": "struct<city: string, zip_code: string>",
    "address.city": "text",
    "address.zip_code": "string",
    "tags": "array< string >",
}


@pytest.mark.usefixtures("spark")
def test_a_table_keeps_its_contract(own: Project) -> None:
    contract = {"columns": AGREED, "others": "refuse"}
    script(own, [record(id=1), state(1)], schema=COLUMNS, contract=contract)
    results = evaluations(materialize(own, THINGS))
    assert results["contract"].passed
    script(own, [record(id=2), state(2)], schema={**COLUMNS, "new": TEXT}, contract=contract)
    assert "contract: in the catalog: the column 'new' is not in the contract" in refuse(own)
    allowed = {"columns": AGREED}
    script(own, [record(id=2), state(2)], schema={**COLUMNS, "new": TEXT}, contract=allowed)
    assert evaluations(materialize(own, THINGS))["contract"].passed


@pytest.mark.usefixtures("spark")
def test_a_violation_warns_or_is_an_error_of_the_check(own: Project) -> None:
    numbers = {"id": {"type": "number"}, "name": TEXT}
    script(own, [record(id=1.5), state(1)], schema=numbers)
    assert materialize(own, THINGS).success
    # The table keeps the type that holds its values, whatever the catalog says from now on.
    contract: Any = {"columns": {"id": "bigint"}}
    script(own, [record(id=2), state(2)], contract=contract)
    results = evaluations(materialize(own, THINGS))
    assert results["contract"].description == "the column 'id' is double, not bigint"
    assert results["contract"].severity == dg.AssetCheckSeverity.ERROR
    contract = {"columns": {"ids": "bigint"}, "on_violation": "warn"}
    script(own, [record(id=3), state(3)], contract=contract)
    results = evaluations(materialize(own, THINGS))
    assert select_failed(results) >= {"contract"}
    assert results["contract"].severity == dg.AssetCheckSeverity.WARN
    assert results["contract"].description == "there is no column 'ids'; did you mean 'id'?"


@pytest.mark.usefixtures("spark")
def test_a_schema_that_changes_in_a_sync_and_breaks_the_contract_is_not_written(
    own: Project, elt: Elt
) -> None:
    contract = {"columns": {"id": "bigint", "name": "string"}}
    connect(own, elt, SCHEMA, tap_record(id=1, name="a"), contract=contract)
    assert materialize(own).success
    says(own, SCHEMA, schema("id", id="integer"), tap_record(id=2))
    assert materialize(own).success
    says(own, SCHEMA, schema("id", id="integer", name="integer"), tap_record(id=3, name=3))
    text = failure_of(materialize(own))
    assert "contract: in the schema that the source sent: the column 'name' is bigint" in text
    assert names(own) == {1: "a", 2: None}
    says(own, schema("id", id="integer", name="integer"), tap_record(id=3, name=3))
    assert "contract" in failure_of(materialize(own))


@pytest.mark.parametrize(
    ("contract", "message"),
    [
        ({"columns": {"id": "string"}}, "in the catalog: the column 'id' is bigint, not string"),
        ({"columns": {"nmae": "string"}}, "no column 'nmae'; did you mean 'name'?"),
        ({"columns": {"name.first": "string"}}, "there is no column 'name.first'"),
        ({"columns": {"id": "varchar"}}, "'varchar' is not the type of a column; write one of"),
        ({"columns": {}}, "columns"),
        ({"columns": {"id": "bigint"}, "on_violation": "tell"}, "on_violation"),
        ({"colums": {"id": "bigint"}}, "did you mean 'columns'?"),
    ],
)
def test_a_contract_that_cannot_hold_is_refused(own: Project, contract: Any, message: str) -> None:
    script(own, [], contract=contract)
    assert message in refuse(own)
