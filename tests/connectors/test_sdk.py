"""The features that every source gets from the SDK, shown on a source made for it."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from connectors.sdk import Checkpoint, Source, Stream, run
from connectors.sdk.items import Item, Page
from connectors.sdk.reports import RATE_LIMITED, report_wait
from connectors.sdk.saved_config import report_config
from connectors.sdk.schema_sample import SchemaSample
from elt_assets.errors import ConfigError, EltError, SystemFailure, TransientError
from elt_assets.protocol.catalog import INCREMENTAL, ConfiguredStream
from elt_assets.protocol.codec import decode
from tests.connectors.support import call, catalog, errors
from tests.support.project import REPOSITORY

Json = dict[str, Any]
SECRET = "hunter2-abc"


class Script(Stream):
    """Yields what it is given; an exception among it is raised."""

    json_schema: Json = {"type": "object"}  # noqa: RUF012 - never changed

    def __init__(self, name: str, *items: Item | Exception, namespace: str | None = None):
        self.name = name
        self.namespace = namespace
        self.items = items

    def read(self, _configured: ConfiguredStream, state: Json | None) -> Iterator[Item]:
        if state is not None:
            yield {"resumed": state}
        for item in self.items:
            if isinstance(item, Exception):
                raise item
            yield item


class Incremental(Script):
    supported_sync_modes = ("full_refresh", INCREMENTAL)


class Scripted(Source):
    name = "scripted"

    def __init__(self, *streams: Stream, trouble: Exception | None = None):
        self.offered = streams
        self.trouble = trouble
        self.connection_specification = {
            "type": "object",
            "required": ["host"],
            "additionalProperties": False,
            "properties": {
                "host": {"type": "string"},
                "port": {"type": "integer", "minimum": 1},
                "password": {"type": "string", "airbyte_secret": True, "minLength": 20},
                "auth": {
                    "oneOf": [
                        {"properties": {"token": {"type": "integer", "airbyte_secret": True}}},
                        {"properties": {"token": {"type": "boolean"}}},
                    ]
                },
            },
        }

    def check(self, config: Json) -> None:
        if self.trouble:
            raise self.trouble

    def streams(self, config: Json) -> Sequence[Stream]:
        self.check(config)
        return self.offered


WHOLE = {"sync_mode": "full_refresh", "destination_sync_mode": "append"}


def configured(**settings: Any) -> Json:
    """A catalog of a stream that no source has, with these settings alone."""
    return {"streams": [{"stream": {"name": "no such stream", "json_schema": {}}, **settings}]}


class Shell:
    """Runs a command of a source; files are given by their content."""

    def __init__(self, folder: Path):
        self.folder = folder

    def __call__(self, source: Source, command: str, **files: Any) -> tuple[int, list[Json]]:
        return call(source, self.folder, command, **files)

    def read(self, source: Source, *names: str, mode: str = "full_refresh", **files: Any) -> Any:
        files = {"config": {"host": "h"}, "catalog": catalog(*names, mode=mode), **files}
        return self(source, "read", **files)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def story(messages: list[Json]) -> list[str]:
    """Each message in a word or two."""
    events = []
    for message in messages:
        trace = message.get("trace", {})
        status = trace.get("stream_status")
        if status:
            events.append(f"{status['stream_descriptor']['name']} {status['status']}")
        else:
            events.append(trace.get("type") or message["type"])
    return events


@pytest.mark.spec("protocol.27")
def test_statuses_surround_the_records(shell: Shell) -> None:
    source = Scripted(Script("a", {"x": 1}, Checkpoint({"n": 1}), {"x": 2}), Script("empty"))
    code, messages = shell.read(source, "a", "empty")
    assert code == 0
    assert story(messages) == [
        *("a STARTED", "a RUNNING", "RECORD", "STATE", "RECORD", "a COMPLETE"),
        *("empty STARTED", "empty COMPLETE"),
    ]


@pytest.mark.spec("protocol.20")
def test_every_line_is_a_message(shell: Shell) -> None:
    stream = Script('q"ö\n', {"x": "a\nb"}, Checkpoint({}), ValueError("\ud800"), namespace="ñ")
    offered = {"name": 'q"ö\n', "namespace": "ñ", "json_schema": {}}
    _, messages = shell.read(Scripted(stream), catalog=catalog(offered))
    assert story(messages)[2:5] == ["RECORD", "STATE", "ERROR"]
    assert messages[2]["record"]["namespace"] == "ñ"
    for message in messages:
        decode(json.dumps(message).encode())


@pytest.mark.parametrize(
    ("error", "failure_type"),
    [
        (ConfigError("no"), "config_error"),
        (TransientError("no"), "transient_error"),
        (SystemFailure("no"), "system_error"),
        (ZeroDivisionError("no"), "system_error"),
    ],
)
def test_a_failed_stream_does_not_affect_other_streams(
    shell: Shell, error: Exception, failure_type: str
) -> None:
    source = Scripted(Script("bad", {"x": 1}, error), Script("good", {"x": 2}))
    code, messages = shell.read(source, "bad", "good")
    assert code == 1
    assert story(messages) == [
        *("bad STARTED", "bad RUNNING", "RECORD", "ERROR", "bad INCOMPLETE"),
        *("good STARTED", "good RUNNING", "RECORD", "good COMPLETE"),
    ]
    [trace] = errors(messages)
    assert trace["failure_type"] == failure_type
    assert trace["stream_descriptor"] == {"name": "bad"}
    assert ("stack_trace" in trace) == (failure_type == "system_error")


def test_a_record_that_cannot_be_encoded_leaves_no_partial_line(shell: Shell) -> None:
    code, messages = shell.read(Scripted(Script("a", {"x": 1}, {"x": object()})), "a")
    assert code == 1
    assert story(messages)[2:] == ["RECORD", "ERROR", "a INCOMPLETE"]


def test_a_state_counts_the_records_since_the_previous_state(shell: Shell) -> None:
    items = ({"x": 1}, {"x": 2}, Checkpoint({"n": 2}), {"x": 3}, Checkpoint({"n": 3}))
    _, messages = shell.read(Scripted(Script("a", *items, Checkpoint({"n": 3}))), "a")
    states = [message["state"] for message in messages if message["type"] == "STATE"]
    assert [state["sourceStats"]["recordCount"] for state in states] == [2.0, 1.0, 0.0]
    assert {state["type"] for state in states} == {"STREAM"}


BLOBS: Json = {"a": {"n": 1}, "b": None}
LISTED = [
    {"type": "STREAM", "stream": {"stream_descriptor": {"name": n}, "stream_state": blob}}
    for n, blob in BLOBS.items()
]


@pytest.mark.spec("protocol.81")
@pytest.mark.parametrize(("mode", "seen"), [("incremental", [{"n": 1}]), ("full_refresh", [])])
@pytest.mark.parametrize(
    "state",
    [LISTED, BLOBS, [{"type": "LEGACY", "data": BLOBS}]],
    ids=["of streams", "legacy", "legacy in a list"],
)
def test_only_incremental_reads_receive_the_state(
    shell: Shell, mode: str, seen: list[Json], state: Any
) -> None:
    source = Scripted(Incremental("a"), Incremental("b"))
    code, messages = shell.read(source, "a", "b", mode=mode, state=state)
    assert code == 0
    assert [m["record"]["data"]["resumed"] for m in messages if "record" in m] == seen


@pytest.mark.spec("protocol.67")
def test_an_unsupported_sync_mode_is_a_config_error(shell: Shell) -> None:
    code, messages = shell.read(Scripted(Script("a", {"x": 1})), "a", mode="incremental")
    assert code == 1
    assert errors(messages)[0]["failure_type"] == "config_error"


def test_a_wait_for_a_rate_limit_is_reported_as_a_stream_status(shell: Shell) -> None:
    class Slow(Script):
        def read(self, _configured: ConfiguredStream, state: Json | None) -> Iterator[Item]:
            report_wait(60, RATE_LIMITED)
            report_wait(60, "FAILED")
            report_wait(0.1, RATE_LIMITED)
            yield {"x": 1}

    _, messages = shell.read(Scripted(Slow("a")), "a")
    assert story(messages)[:4] == ["a STARTED", "a RUNNING", "LOG", "a RUNNING"]
    [reason] = messages[1]["trace"]["stream_status"]["reasons"]
    assert reason["type"] == "RATE_LIMITED"
    assert reason["rate_limited"]["quota_reset"] > messages[1]["trace"]["emitted_at"]


def test_a_record_that_violates_its_schema_causes_one_warning(shell: Shell) -> None:
    stream = Script("a", {"n": "x"}, {"n": "y"}, {"n": None, "m": [{"k": 1}]}, {"n": 1e308})
    stream.json_schema = {
        "type": "object",
        "properties": {
            "n": {"type": "integer"},
            "m": {"items": {"properties": {"k": {"type": "string"}}}},
        },
    }
    code, messages = shell.read(Scripted(stream), "a")
    assert code == 0
    lines = [m["log"]["message"] for m in messages if m["type"] == "LOG"]
    assert [line.rpartition(": ")[2] for line in lines] == ['"integer"`', '"string"`']
    assert "n: violates `type" in lines[0] and "m.[].k: violates `type" in lines[1]


def test_numbers_that_json_cannot_represent_become_null(shell: Shell) -> None:
    odd = {"x": Decimal("NaN"), "y": [float("inf"), {"z": Decimal("sNaN")}], "text": "NaN"}
    _, messages = shell.read(Scripted(Script("a", odd)), "a")
    [record] = [m["record"]["data"] for m in messages if m["type"] == "RECORD"]
    assert record == {"x": None, "y": [None, {"z": None}], "text": "NaN"}


@pytest.mark.spec("protocol.94")
def test_an_unknown_stream_is_skipped_with_a_warning(shell: Shell) -> None:
    code, messages = shell.read(Scripted(Script("a")), "gone", "a")
    assert code == 0
    assert messages[0]["log"]["level"] == "WARN"
    assert story(messages) == ["LOG", "a STARTED", "a COMPLETE"]


@pytest.mark.spec("protocol.23")
def test_all_violations_of_the_config_are_listed_without_values(shell: Shell) -> None:
    config = {"port": 0, "password": SECRET, "auth": {"token": SECRET}, "colour": "red"}
    code, [message] = shell(Scripted(), "check", config=config)
    assert code == 0
    assert message["connectionStatus"]["status"] == "FAILED"
    text = message["connectionStatus"]["message"]
    for part in ("'host' is a required", "port: ", "password: ", "auth", "'colour' was unexpected"):
        assert part in text
    assert SECRET not in text


@pytest.mark.parametrize("command", ["discover", "read"])
def test_an_invalid_config_fails_other_commands(shell: Shell, command: str) -> None:
    files: Json = {"catalog": {"streams": []}} if command == "read" else {}
    code, messages = shell(Scripted(), command, config={}, **files)
    assert code == 1
    assert story(messages) == ["ERROR"]
    assert errors(messages)[0]["failure_type"] == "config_error"


@pytest.mark.parametrize("error", [ConfigError, RuntimeError])
def test_secrets_are_masked_in_errors(shell: Shell, error: type[Exception]) -> None:
    password = SECRET * 3
    source = Scripted(trouble=error(f"cannot log in with {password}"))
    for command in ("check", "discover"):
        _, messages = shell(source, command, config={"host": "h", "password": password})
        assert "cannot log in with ***" in json.dumps(messages)
        assert SECRET not in json.dumps(messages)


@pytest.mark.spec("protocol.4")
def test_check_reports_its_result(shell: Shell) -> None:
    statuses: list[tuple[EltError | None, str]] = [
        (None, "SUCCEEDED"),
        (TransientError("busy", guidance="wait"), "FAILED"),
    ]
    for trouble, expected in statuses:
        code, [message] = shell(Scripted(trouble=trouble), "check", config={"host": "h"})
        assert (code, message["connectionStatus"]["status"]) == (0, expected)
    assert message["connectionStatus"]["message"] == "busy\nwait"


@pytest.mark.spec("protocol.67")
@pytest.mark.parametrize(
    "files",
    [
        {"config": "{"},
        {"config": "[]"},
        {"catalog": "{}"},
        {"catalog": '{"streams": [{}]}'},
        {"catalog": configured()},
        {"catalog": configured(sync_mode="full_refresh")},
        {"catalog": configured(sync_mode="INVALID", destination_sync_mode="append")},
        {"catalog": configured(sync_mode="full_refresh", destination_sync_mode="INVALID")},
        {"state": '{"a": 7}'},
        {"state": '[{"data": {"a": 7}}]'},
        {"state": '[{"type": "STREAM", "stream": {}}]'},
        {"state": '[{"type": "GLOBAL", "global": {"stream_states": []}}]'},
        {"state": '[{"stream": {"stream_descriptor": {"name": "a"}, "stream_state": 7}}]'},
    ],
)
def test_malformed_files_are_config_errors(shell: Shell, files: Json) -> None:
    code, messages = shell.read(Scripted(Script("a")), "a", **files)
    assert code == 1
    assert [error["failure_type"] for error in errors(messages)] == ["config_error"]


@pytest.mark.spec("protocol.2")
def test_spec_needs_no_config(shell: Shell) -> None:
    code, [message] = shell(Scripted(), "spec")
    assert code == 0
    assert message["spec"]["connectionSpecification"]["required"] == ["host"]


def test_wrong_arguments_have_an_exit_code_of_their_own() -> None:
    for argv in ([], ["read"], ["fly"]):
        with pytest.raises(SystemExit) as stop:
            run(Scripted(), argv, io.BytesIO())
        assert stop.value.code == 2


def test_records_of_a_page_are_sent_like_single_records(shell: Shell) -> None:
    rows: list[Json] = [{"n": 1, "text": "a\nb"}, {"n": float("nan")}, {"n": Decimal("NaN")}, {}]
    together = Script("s", Page(rows), Checkpoint({"n": 4}), Page([]))
    alone = Script("s", *rows, Checkpoint({"n": 4}))
    _, messages = shell.read(Scripted(together), "s")
    _, expected = shell.read(Scripted(alone), "s")
    assert [_timeless(each) for each in messages] == [_timeless(each) for each in expected]


def test_only_the_first_records_of_a_page_are_checked_against_the_schema(shell: Shell) -> None:
    stream = Script("s", Page([{"n": 1}] * 99 + [{"n": "x"}, {"n": []}]))
    stream.json_schema = {"properties": {"n": {"type": "integer"}}}
    _, messages = shell.read(Scripted(stream), "s")
    (warning,) = [each["log"]["message"] for each in messages if each["type"] == "LOG"]
    assert "n" in warning and "does not fit the schema" in warning


def test_the_sample_of_records_checks_any_number_of_references_and_skips_what_is_too_deep() -> None:
    tree = {"properties": {"n": {"type": "integer"}, "in": {"$ref": "#/definitions/tree"}}}
    schema = {
        "definitions": {"tree": tree},
        "properties": {"all": {"items": {"$ref": "#/definitions/tree"}}},
    }
    sample = SchemaSample(schema)
    many = {"all": [{"n": 1}] * 20_000 + [{"n": "x"}]}
    assert list(sample.check(many)) == ['all.[].n: violates `type: "integer"`']
    deep: dict[str, Any] = {}
    for _ in range(400):
        deep = {"in": deep}
    assert list(sample.check({"all": [deep]})) == []


def _timeless(message: Json) -> Json:
    """Return a message without the times at which it was sent."""
    found: Json = json.loads(json.dumps(message))
    for body in found.values():
        if isinstance(body, dict):
            body.pop("emitted_at", None)
            body.get("stream_status", {}).pop("emitted_at", None)
    return found


class Renewing(Scripted):
    """A source that gets a new token when it is checked."""

    warnings = ("the manifest has an unknown field",)
    advanced_auth = {"auth_flow_type": "oauth2.0"}  # noqa: RUF012 - never changed

    def check(self, config: Json) -> None:
        report_config({**config, "password": SECRET * 3})


def test_an_updated_config_is_sent(shell: Shell) -> None:
    _, messages = shell(Renewing(), "check", config={"host": "h"})
    (control,) = [each["control"] for each in messages if each["type"] == "CONTROL"]
    assert control["type"] == "CONNECTOR_CONFIG"
    assert control["connectorConfig"] == {"config": {"host": "h", "password": SECRET * 3}}


def test_a_tap_writes_an_updated_config_to_its_file(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"host": "h"}')
    assert run(Renewing(), ["--config", str(path), "--discover"], io.BytesIO()) == 0
    assert json.loads(path.read_text()) == {"host": "h", "password": SECRET * 3}
    assert path.stat().st_mode & 0o077 == 0
    assert list(tmp_path.iterdir()) == [path]


def test_a_source_may_log_warnings_and_declare_its_authorization(shell: Shell) -> None:
    for command in ("check", "discover"):
        _, messages = shell(Renewing(), command, config={"host": "h"})
        logged = [each["log"]["message"] for each in messages if each["type"] == "LOG"]
        assert logged == ["the manifest has an unknown field"]
    _, (spec,) = shell(Renewing(), "spec")
    assert spec["spec"]["advanced_auth"] == {"auth_flow_type": "oauth2.0"}


def test_the_start_of_a_source_imports_no_check_of_values_and_searches_no_packages() -> None:
    """Each sync starts a source twice, and pays its imports each time."""
    program = (
        "import sys, connectors.sdk; print({'jsonschema', 'importlib.metadata'} & {*sys.modules})"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "set()", done.stderr
