"""`elt sync` by cron: what was changed, rejected or not declared, failed checks, and the exit code."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest

from elt_assets.cli import main
from tests.programs.scripted import record, script, state, status
from tests.programs.shared_source import append, connection
from tests.programs.windowed_source import windowed
from tests.support.elt import Elt
from tests.support.project import Project

DAILY = {"type": "daily", "start": "2026-01-01", "bind": {"start": "from", "end": "to"}}
KEYED: Any = {"destination_sync_mode": "append_dedup", "primary_key": [["id"]]}
NAMELESS = {"not_null": {"column": "name"}}
LINES = [record(id=1), record(id=2, name="x"), state(2)]


def run(*words: str) -> int:
    return main(["sync", *words])


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("checks", "failed"),
    [
        (NAMELESS, "not_null_name"),
        ({"row_count": {"min": 9}}, "row_count"),
        ({"unique": {"columns": ["name"], "over": "new"}, "row_count": {"max": 1}}, "row_count"),
        ({"sql": {"name": "none", "query": "select id from {table}"}}, "none"),
        ({"not_null": {"column": "name", "blocking": True}}, "not_null_name"),
        ({"fail_run": True, **NAMELESS}, "not_null_name"),
        ({"fail_run": True, "accepted_values": {"column": "name", "values": ["y"]}}, "accepted_values_name"),
    ],
)  # fmt: skip
def test_a_failed_check_of_severity_error_is_exit_code_3(
    own: Project, elt: Elt, checks: dict[str, Any], failed: str
) -> None:
    script(own, LINES, checks=checks)
    own.amend("scripted", retry={"attempts": 2, "delay": "0.1s"})
    answer = elt.json("sync", "scripted", code=3)
    assert answer["complete"] and answer["streams"][0]["complete"] and answer["errors"] == []
    assert answer["streams"][0]["read"] == 2  # and not again
    (check,) = answer["failed_checks"]
    is_blocking = "fail_run" in checks or "blocking" in str(checks)
    assert (check["stream"], check["check"], check["severity"], check["blocking"]) == (
        "things", failed, "ERROR", is_blocking,
    )  # fmt: skip
    assert check["description"] and isinstance(check["metadata"]["rows"], int)
    assert own.committed_state("scripted", "things")["stream"]["stream_state"] == {"cursor": 2}
    assert len(own.rows("scripted", "things")) == 2
    assert run("scripted", "--allow-failed-checks") == 0
    output = elt.capture.readouterr().out
    assert f"failed check things: {failed} (severity ERROR" in output
    assert "The sync is complete: its records and states are committed" in output


@pytest.mark.usefixtures("spark")
def test_changed_rejected_and_undeclared_are_told_with_exit_code_0(own: Project, elt: Elt) -> None:
    meta = {
        "changes": [{"field": "name", "change": "NULLED", "reason": "SOURCE_FIELD_SIZE_LIMITATION"}]
    }
    cut = record(id=4)
    cut["record"]["meta"] = meta
    lines = [
        *(record(id=number, size="?") for number in (1, 2)),
        record(id=3, size=1, more="x"),
        cut,
        record(name="nobody"),
        record(id="?"),
        state(6),
    ]
    schema = {"id": {"type": "integer"}, "name": {"type": "string"}, "size": {"type": "integer"}}
    script(own, lines, schema=schema, **KEYED)
    answer = elt.json("sync", "scripted")
    (stream,) = answer["streams"]
    assert (stream["read"], stream["committed"], stream["rejected"], stream["changed"]) == (
        6,
        4,
        2,
        3,
    )
    assert stream["changed_fields"] == [
        {"field": "size", "change": "NULLED", "reason": "DESTINATION_TYPECAST_ERROR", "records": 2},
        {
            "field": "name",
            "change": "NULLED",
            "reason": "SOURCE_FIELD_SIZE_LIMITATION",
            "records": 1,
        },
    ]
    assert stream["undeclared_fields"] == {"more": 1}
    assert set(stream["rejected_reasons"].values()) == {1} and len(stream["rejected_reasons"]) == 2
    assert {check["check"] for check in answer["failed_checks"]} == {"changed", "rejected"}
    assert {check["severity"] for check in answer["failed_checks"]} == {"WARN"}
    metadata = own.metadata("scripted", "things")
    assert metadata["elt/changed_fields"] == {
        "size": {"NULLED DESTINATION_TYPECAST_ERROR": 2},
        "name": {"NULLED SOURCE_FIELD_SIZE_LIMITATION": 1},
    }
    assert sum(metadata["elt/rejected_reasons"].values()) == 2
    script(own, lines, schema=schema, **KEYED)
    output = elt("sync", "scripted")
    for part in (
        "things: 'size' of 2 of 6 records was changed: NULLED (DESTINATION_TYPECAST_ERROR)",
        "things: 'name' of 1 of 6 records was changed by the source: NULLED",
        "things: 1 of 6 records rejected, to the dead letter: ",
        "things: fields that the catalog does not declare: more (1 records)",
        "things: changed (severity WARN): 50.00% of the records read",
    ):
        assert part in output


@pytest.mark.usefixtures("spark")
def test_a_failed_stream_hides_no_failed_check_and_the_other_way_round(
    own: Project, elt: Elt
) -> None:
    """The exit code is that of the sync, which is not complete; `--allow-failed-checks` changes nothing."""
    lines = [record(id=1), state(1), "!exit 3"]
    script(own, lines, checks={"fail_run": True, **NAMELESS})
    answer = elt.json("sync", "scripted", code=1)
    assert not answer["complete"] and not answer["streams"][0]["complete"]
    unchecked = {entry["check"] for entry in answer["unchecked"]}
    assert {"not_null_name", "counts", "changed"} <= unchecked and answer["failed_checks"] == []
    assert run("scripted", "--allow-failed-checks") == 1
    assert "not checked things: counts, completed" in elt.capture.readouterr().out
    trace = {
        "type": "ERROR",
        "emitted_at": 1,
        "error": {"message": "x", "failure_type": "config_error"},
    }
    script(own, [{"type": "TRACE", "trace": trace}, "!exit 1"], checks=NAMELESS)
    assert run("scripted", "--allow-failed-checks") == 2


@pytest.mark.usefixtures("spark")
def test_streams_that_are_read_together_and_partitions_have_their_checks(
    own: Project, elt: Elt
) -> None:
    log = connection(own)
    append(log, ("users", 1), ("orders", 2))
    own.amend("shop", checks={"row_count": {"min": 2, "name": "two", "severity": "warn"}})
    answer = elt.json("sync", "shop")
    assert [check["stream"] for check in answer["failed_checks"]] == ["users", "orders"]
    own.amend("shop", checks={"row_count": {"min": 3, "blocking": True}})
    answer = elt.json("sync", "shop", code=3)
    assert len(answer["failed_checks"]) == 2 and answer["complete"]
    later = {**DAILY, "start": "2026-01-03"}
    windowed(own, partitions=DAILY)
    own.amend(
        "weather",
        streams=[
            {"name": "readings", "partitions": DAILY},
            {"name": "stations", "partitions": later},
        ],
        checks={"row_count": {"max": 1, "over": "new"}},
    )
    answer = elt.json("sync", "weather", "--partition", "2026-01-05", code=3)
    assert len(answer["run_ids"]) == 2
    assert {check["stream"] for check in answer["failed_checks"]} == {"readings", "stations"}


@pytest.mark.usefixtures("spark")
def test_the_page_of_a_run_shows_a_failed_check_as_an_error(own: Project, elt: Elt) -> None:
    script(own, [status("STARTED"), *LINES, status("COMPLETE")], checks=NAMELESS)
    answer = elt.json("sync", "scripted", code=3)
    with dg.DagsterInstance.from_config(str(own.home)) as instance:
        entries = instance.all_logs(answer["run_id"])
        run_ = instance.get_run_by_id(answer["run_id"])
    texts = {entry.user_message: entry.level for entry in entries if entry.dagster_event is None}
    (text,) = [text for text in texts if "check not_null_name failed" in text]
    assert text.startswith(
        "scripted/things: check not_null_name failed (severity ERROR): 1 of 2 rows"
    )
    assert texts[text] == 40
    assert run_ is not None and run_.is_success


def test_a_sync_by_cron_says_it_on_its_outputs_without_a_terminal(own: Project) -> None:
    script(own, LINES, checks={"sql": {"name": "none", "query": "select id from {table}"}})
    done = own.elt("sync", "scripted")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "failed check things: none (severity ERROR): " in done.stdout
    assert done.stderr.count("none") == 0


ORDERED = """
import dagster as dg
import elt_assets

class Ordered(elt_assets.ConnectionComponent):
    def get_asset_spec(self, stream):
        spec = super().get_asset_spec(stream)
        if stream.stream.name != "stations":
            return spec
        return spec.replace_attributes(deps=[dg.AssetKey(["weather", "readings"])])
"""


@pytest.mark.usefixtures("spark")
def test_a_stream_that_a_blocking_check_keeps_from_being_read_is_no_success(
    own: Project, elt: Elt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sync is not complete then, so that `--allow-failed-checks` does not hide it."""
    windowed(own)
    own.amend(
        "weather",
        streams=[{"name": "readings"}, {"name": "stations"}],
        checks={"row_count": {"max": 1, "blocking": True}},
    )
    (own.root / "ordered_weather.py").write_text(ORDERED)
    monkeypatch.syspath_prepend(str(own.root))
    file = own.root / "defs" / "weather" / "defs.yaml"
    file.write_text(
        file.read_text().replace("elt_assets.ConnectionComponent", "ordered_weather.Ordered")
    )
    answer = elt.json("sync", "weather", "--allow-failed-checks", code=1)
    assert [stream["complete"] for stream in answer["streams"]] == [True, False]
    assert "stream 'stations' was not synced" in answer["errors"][0]["message"]
    assert {entry["stream"] for entry in answer["unchecked"]} == {"stations"}
