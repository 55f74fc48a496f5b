"""The rules that people write for the rows of a stream, as checks of its asset."""

from __future__ import annotations

import re
from typing import Any

import dagster as dg
import pytest

from elt_assets.definitions import build
from tests.orchestration.test_automation import refuse
from tests.orchestration.test_checks import KEY, THINGS, alone, select_failed
from tests.programs.scripted import record, script, state
from tests.programs.windowed_source import windowed
from tests.support.project import Project
from tests.support.runs import evaluations, failure_of, materialize

WARN = dg.AssetCheckSeverity.WARN
DAILY = {"type": "daily", "start": "2026-01-01", "bind": {"start": "from", "end": "to"}}
TEXT = {"type": "string"}
SCHEMA: dict[str, Any] = {
    "id": {"type": "integer"},
    "ratio": {"$ref": "WellKnownTypes.json#/definitions/Number"},
    "price": {**TEXT, "airbyte_type": "big_number"},
    "at": {**TEXT, "format": "date-time"},
    "day": {**TEXT, "format": "date"},
    "status": TEXT,
    "paid": {"type": "boolean"},
    "address": {"type": "object", "properties": {"city": TEXT, "z.ip": {"type": "integer"}}},
    "tags": {"type": "array", "items": TEXT},
}
ROWS: list[dict[str, Any]] = [
    {
        "id": 1,
        "ratio": "0.5",
        "price": "0.1",
        "at": "2026-01-01T00:00:00Z",
        "day": "2026-01-01",
        "status": "open",
        "paid": True,
        "address": {"city": "Rome", "z.ip": 1},
        "tags": ["a"],
    },
    {
        "id": 2,
        "ratio": "NaN",
        "price": "0.3",
        "at": "2026-01-02T01:00:00+02:00",
        "day": "2026-01-02",
        "status": "OPEN",
        "paid": False,
        "address": {"z.ip": 1},
        "tags": [],
    },
    {"id": 3},
]


def things(project: Project, rows: list[dict[str, Any]], checks: Any, **stream: Any) -> None:
    lines = [*(record(**row) for row in rows), state(len(rows))]
    script(project, lines, schema=SCHEMA, checks=checks, **stream)


def examples(evaluation: dg.AssetCheckEvaluation) -> Any:
    return evaluation.metadata["examples"].value


def failures(results: dict[str, dg.AssetCheckEvaluation]) -> dict[str, Any]:
    """Return the number of failures of the checks that failed."""
    return {name: results[name].metadata["failed"].value for name in select_failed(results)}


@pytest.mark.usefixtures("spark")
def test_rules_hold_for_values_of_every_type(own: Project) -> None:
    keyed: Any = {"destination_sync_mode": "append_dedup", "primary_key": [["id"]]}
    rules: dict[str, Any] = {
        "not_null": ["id", "ratio", "address.city", {"column": ["address", "z.ip"]}, "tags"],
        "unique": [
            "price",
            {"columns": [["address", "z.ip"]], "name": "zip_is_unique"},
            {"columns": ["status", "address.city"]},
        ],
        "accepted_values": [
            {"column": "status", "values": ["open", "closed"]},
            {"column": "price", "values": [0.1, "0.30"], "name": "prices"},
            {"column": "paid", "values": [True, False]},
            {"column": "ratio", "values": [0.5]},
        ],
        "range": [
            {"column": "id", "min": 1, "max": 2},
            {"column": "ratio", "min": 0},
            {"column": "price", "max": 0.3},
            {"column": "at", "min": "2026-01-01", "max": "2026-01-01T22:00:00Z"},
            {"column": "day", "min": "2026-01-02", "name": "days"},
        ],
        "row_count": {"min": 4},
        "sql": [
            {"name": "nobody_lives_in_rome", "query": "select id from {table} where address.city = 'Rome';"},
            {"name": "all_are_new", "query": "select * from {table} where at < '2000-01-01' -- old"},
        ],
    }  # fmt: skip
    things(own, ROWS, rules, **keyed)
    results = evaluations(materialize(own, THINGS))
    expected = {
        "not_null_ratio": 1, "not_null_address_city": 2, "not_null_address_z_ip": 1, "not_null_tags": 1,
        "zip_is_unique": 1, "accepted_values_status": 1, "accepted_values_ratio": 1, "range_id": 1,
        "range_ratio": 1, "range_at": 1, "days": 1, "row_count": 0, "nobody_lives_in_rome": 1,
    }  # fmt: skip
    assert failures(results) == expected
    assert examples(results["range_ratio"]) == [{"id": "2"}]
    assert examples(results["nobody_lives_in_rome"]) == [{"id": "1"}]
    assert results["accepted_values_status"].description == (
        "1 of 3 rows have a `status` that is not accepted"
    )
    assert "OPEN" not in str(results)
    assert failures(alone(own, "scripted", "things")) == expected


@pytest.mark.usefixtures("spark")
def test_a_rule_is_about_the_new_rows_or_the_whole_table(own: Project) -> None:
    rules: dict[str, Any] = {
        "not_null": [
            {"column": "status", "severity": "warn"},
            {"column": "status", "name": "all_have_a_status", "over": "table"},
        ],
        "row_count": [{"min": 1, "max": 1, "over": "new", "name": "one_is_new"}, {"max": 1}],
        "unique": "id",
    }
    things(own, [{"id": 1}], rules)
    results = evaluations(materialize(own, THINGS))
    assert select_failed(results) == {"not_null_status", "all_have_a_status"}
    assert results["not_null_status"].severity == WARN
    things(own, [{"id": 1, "status": "open"}], rules)
    results = evaluations(materialize(own, THINGS))
    assert select_failed(results) == {"all_have_a_status", "row_count", "unique_id"}
    assert results["not_null_status"].metadata["rows"].value == 1
    (example,) = examples(results["all_have_a_status"])
    assert set(example) == {"_airbyte_raw_id"}


@pytest.mark.usefixtures("spark")
def test_a_blocking_rule_keeps_assets_downstream_from_running(own: Project) -> None:
    @dg.asset(deps=[dg.AssetKey(["scripted", "things"])])
    def report() -> None: ...

    rules = {"not_null": {"column": "status", "blocking": True}}
    things(own, [{"id": 1}], rules)
    blocked = materialize(own, f"{THINGS} or key:report", [report])
    assert "blocking asset check failed" in failure_of(blocked)
    assert evaluations(blocked)["counts"].passed
    events = blocked.get_asset_materialization_events()
    keys = {event.asset_key.path[-1] for event in events if event.asset_key is not None}
    assert "things" in keys
    assert "report" not in keys
    things(own, [{"id": 2, "status": "open"}], rules)
    assert materialize(own, f"{THINGS} or key:report", [report]).success


@pytest.mark.usefixtures("spark")
def test_examples_do_not_show_what_is_hashed(own: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELT_HASH_SALT", "0123456789abcdef0123456789abcdef")
    keyed: Any = {"destination_sync_mode": "append_dedup", "primary_key": [["status"]]}
    things(
        own, [{"id": 1, "status": "anna@example.com"}], {"not_null": "date"},
        fields={"hash": ["status"]}, rename={"status": "mail", "day": "date"}, **keyed,
    )  # fmt: skip
    results = evaluations(materialize(own, THINGS))
    (example,) = examples(results["not_null_date"])
    assert set(example) == {"_airbyte_raw_id"}


@pytest.mark.usefixtures("spark")
def test_a_partitioned_stream_is_checked_in_the_partitions_of_the_run(own: Project) -> None:
    rules: dict[str, Any] = {
        "range": {"column": "value", "max": 23},
        "row_count": [{"max": 48, "over": "new", "name": "day_is_complete"}],
        "unique": {"columns": ["station", "at"], "over": "new"},
        "sql": {
            "name": "south",
            "query": "select * from {table} where value > 23",
            "over": "table",
        },
    }
    windowed(own, config={"factor": 2}, partitions=DAILY, checks=rules)
    results = evaluations(materialize(own, KEY, partition="2026-01-02"))
    assert failures(results) == {"range_value": 24, "south": 24}
    own.reconfigure("weather", factor=1)
    results = evaluations(materialize(own, KEY, partition="2026-01-01"))
    assert failures(results) == {"south": 24}
    assert results["unique_station_at"].metadata["rows"].value == 48


@pytest.mark.usefixtures("spark")
def test_a_query_that_cannot_be_run_fails_its_check_alone(own: Project) -> None:
    rules: dict[str, Any] = {
        "sql": [
            {"name": "misspelt", "query": "select * from {table} where statuss = 'x'"},
            {
                "name": "error_in_the_data",
                "query": "select * from {table} where raise_error(status) is null",
            },
            {"name": "no_such_join", "query": "select * from {table} a join {table} b on a.x = 1"},
        ]
    }
    things(own, [{"id": 1, "status": "anna@example.com"}], rules)
    result = materialize(own, THINGS)
    assert result.success
    results = evaluations(result)
    assert select_failed(results) == {"misspelt", "error_in_the_data", "no_such_join"}
    assert "statuss" in str(results["misspelt"].description)
    assert "USER_RAISED_EXCEPTION" in str(results["error_in_the_data"].description)
    assert "UNRESOLVED_COLUMN" in str(results["no_such_join"].description)
    assert "anna" not in str(results)


@pytest.mark.usefixtures("spark")
def test_a_column_of_another_type_than_the_rule_fails_the_check(own: Project) -> None:
    rules = {"range": {"column": "value", "max": 10}}
    script(own, [record(id=1, value="x")], schema={"id": {"type": "integer"}, "value": TEXT})
    assert materialize(own, THINGS).success
    declared = {"id": {"type": "integer"}, "value": {"type": "integer"}}
    script(own, [record(id=2, value=5)], schema=declared, checks=rules)
    results = evaluations(materialize(own, THINGS))
    assert select_failed(results) >= {"range_value"}
    assert "10 is not a text" in str(results["range_value"].description)


def test_rules_of_a_connection_apply_to_the_streams_that_have_the_column(own: Project) -> None:
    windowed(own)
    own.amend(
        "weather",
        streams=[{"name": "readings"}, {"name": "stations", "checks": {"row_count": False}}],
        checks={"not_null": ["at"], "row_count": {"min": 1}},
    )
    checks = {
        (key.asset_key.path[-1], key.name) for key in build().resolve_asset_graph().asset_check_keys
    }
    assert {("readings", "not_null_at"), ("readings", "row_count")} <= checks
    assert not {("stations", "not_null_at"), ("stations", "row_count")} & checks
    own.amend("weather", checks={"not_null": ["att"]})
    assert "not_null: no stream of the connection has the column 'att'" in refuse(own)


@pytest.mark.parametrize(
    ("checks", "message"),
    [
        ({"freshness": {"fail_after": "1d"}}, "unknown key 'freshness'; write it beside `checks`"),
        ({"not_null": "emial"}, "not_null: there is no column 'emial'"),
        ({"not_null": "address.ctiy"}, "did you mean 'address.city'?"),
        ({"not_null": ["id", "id"]}, "another check of the name 'not_null_id'"),
        ({"not_null": {"column": "id", "name": "a b"}}, "may hold only letters"),
        ({"unique": "tags"}, "its values (array<string>) cannot be compared"),
        ({"unique": {"columns": []}}, "unique"),
        ({"accepted_values": {"column": "id", "values": ["1"]}}, "'1' is not an integer"),
        ({"accepted_values": {"column": "status", "values": [1]}}, "write it in quotes"),
        ({"accepted_values": {"column": "paid", "values": [1]}}, "a value of type boolean"),
        (
            {"accepted_values": {"column": "id", "values": [1, None]}},
            "null is accepted in any case",
        ),
        ({"accepted_values": {"column": "day", "values": ["soon"]}}, "a value of type date"),
        ({"range": {"column": "price", "min": 0.0000000001}}, "a value of type decimal(38,9)"),
        ({"range": {"column": "ratio", "min": float("nan")}}, "a value of type double"),
        ({"range": {"column": "id", "min": 2**63}}, "is not an integer"),
        ({"range": {"column": "address", "min": 1}}, "cannot be compared"),
        ({"range": {"column": "id"}}, "write `min`, `max` or both"),
        ({"row_count": {}}, "write `min`, `max` or both"),
        ({"row_count": {"min": 3, "max": 2}}, "`min` is greater than `max`"),
        ({"sql": {"name": "q", "query": "select 1"}}, "write `from {table}`"),
        ({"sql": {"query": "select * from {table}"}}, "name"),
        ({"row_count": {"min": 1, "blocking": True, "severity": "warn"}}, "a warning cannot block"),
        ({"row_count": {"min": 1, "over": "all"}}, "over"),
        (
            {"sql": {"name": "counts", "query": "from {table}"}},
            "another check of the name 'counts'",
        ),
        ({"range": {"colum": "id", "min": 1}}, "did you mean 'column'?"),
    ],
)
def test_a_rule_that_cannot_be_checked_is_refused(own: Project, checks: Any, message: str) -> None:
    things(own, [], checks)
    assert message in refuse(own)


def test_what_is_not_valid_is_reported_together_with_lines(own: Project) -> None:
    things(own, [], {"not_null": "emial"}, contract={"columns": {"id": "text"}})
    own.amend("scripted", schedule="never")
    text = refuse(own)
    for problem in (
        "stream 'things': checks: not_null: there is no column 'emial'",
        "stream 'things': contract: in the catalog: the column 'id' is bigint, not string",
        "schedule: 'never' is not a valid cron expression",
    ):
        assert re.search(rf"\n  - {re.escape(problem)}.* \(line \d+\)", text)
