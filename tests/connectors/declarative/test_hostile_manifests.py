"""Whole manifests, and answers to them, that are wrong or hostile: each is a clear error."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.declarative.test_credentials import OAUTH, Json, Shell, manifest, stream
from tests.connectors.support import catalog, errors, records
from tests.programs.json_api import Answer
from tests.programs.recording_api import RecordingApi, routes, serving
from tests.support.project import REPOSITORY

NONE = {"type": "NoAuth"}
ORDERS = manifest(stream("orders", "/orders", NONE))


@pytest.fixture
def api() -> Iterator[RecordingApi]:
    with serving(RecordingApi(lambda _: [{"id": 1}])) as found:
        yield found


@pytest.fixture
def shell(api: RecordingApi, tmp_path: Path) -> Shell:
    return Shell(tmp_path, {"url": api.url, "key": "é", "credentials": {"refresh_token": "r1"}})


def changed(**requester: Any) -> Json:
    """Return the manifest with other fields of the requester."""
    written = copy.deepcopy(ORDERS)
    written["streams"][0]["retriever"]["requester"] |= requester
    return written


def message(messages: list[Json]) -> str:
    """Return the message of the only error."""
    (error,) = errors(messages)
    return str(error["message"])


@pytest.mark.parametrize(("start", "end"), [(b"[", b"]"), (b'{"a":[', b"]}")])
def test_a_body_that_is_nested_too_deep_is_an_error(
    api: RecordingApi, shell: Shell, start: bytes, end: bytes
) -> None:
    api.script = lambda _: Answer(body=b'[{"id": ' + start * 100_000 + end * 100_000 + b"}]")
    assert "is not JSON: it is nested too deep" in message(shell.read(ORDERS, "orders"))


@pytest.mark.parametrize("name", ["X-é", "a b", "", "X\r\nY", "X:", "{{ config['key'] }}"])
@pytest.mark.parametrize("where", ["requester", "page", "authenticator"])
def test_a_name_of_a_header_that_http_forbids_is_an_error_before_the_request(
    api: RecordingApi, shell: Shell, name: str, where: str
) -> None:
    option = {"type": "RequestOption", "inject_into": "header", "field_name": name}
    token = {"type": "ApiKeyAuthenticator", "api_token": "k", "inject_into": option}
    written = changed(
        request_headers={name: "v"} if where == "requester" else {},
        authenticator=token if where == "authenticator" else NONE,
    )
    if where == "page":
        written["streams"][0]["retriever"]["paginator"] = {
            "type": "DefaultPaginator",
            "page_size_option": option,
            "pagination_strategy": {"type": "PageIncrement", "page_size": 5},
        }
    assert "contains a character that HTTP forbids" in message(shell.read(written, "orders"))
    assert not api.requests


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("kind", ["refresh", "login"])
def test_credentials_are_not_redirected_to_another_host(
    api: RecordingApi, shell: Shell, status: int, kind: str
) -> None:
    login = {
        "type": "SessionTokenAuthenticator",
        "login_requester": {
            "type": "HttpRequester",
            "url_base": "{{ config['url'] }}",
            "path": "/token",
            "http_method": "POST",
            "request_body_json": {"password": "secret"},
        },
        "session_token_path": ["access_token"],
        "request_authentication": {"type": "Bearer"},
    }
    auth = OAUTH if kind == "refresh" else login
    with serving(RecordingApi(lambda _: {"access_token": "a"})) as other:
        url = other.url.replace("127.0.0.1", "localhost")
        api.script = routes({"/token": Answer(status, headers={"Location": f"{url}/token"})})
        messages = shell.read(manifest(stream("orders", "/orders", auth)), "orders")
        assert f"a redirect that is not followed ({status})" in message(messages)
        assert not other.requests and not records(messages)


def run_program(
    folder: Path, *words: str, **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """Run the program of manifests on `manifest.yaml` of a folder."""
    return subprocess.run(
        [sys.executable, "-m", "connectors.declarative", "--manifest=manifest.yaml", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **environment},
        capture_output=True,
        check=False,
    )


@pytest.mark.parametrize("size", [10**9, 10**40, "{{ 10 ** 40 }}"])
@pytest.mark.parametrize("kind", ["PageIncrement", "OffsetIncrement"])
def test_a_huge_page_size_is_sent_and_takes_no_memory(
    api: RecordingApi, shell: Shell, size: Any, kind: str
) -> None:
    written = copy.deepcopy(ORDERS)
    written["streams"][0]["retriever"]["paginator"] = {
        "type": "DefaultPaginator",
        "page_size_option": {
            "type": "RequestOption",
            "inject_into": "request_parameter",
            "field_name": "size",
        },
        "pagination_strategy": {"type": kind, "page_size": size},
    }
    assert records(shell.read(written, "orders")) == [{"id": 1}]
    assert int(api.requests[0].params["size"]) >= 10**9


def test_a_check_of_a_stream_that_does_not_exist_fails(shell: Shell) -> None:
    written = {**ORDERS, "check": {"type": "CheckStream", "stream_names": ["nothing"]}}
    (status,) = [
        m["connectionStatus"] for m in shell.run(written, "check") if "connectionStatus" in m
    ]
    assert status["status"] == "FAILED"
    assert "the manifest has no stream 'nothing'" in status["message"]
    assert "name one of these: 'orders'" in status["message"]


def test_a_template_that_needs_too_much_memory_fails_its_stream_alone(
    api: RecordingApi, shell: Shell, tmp_path: Path
) -> None:
    huge = stream("huge", "/{{ 'a' * 10 ** 11 }}", NONE)
    (tmp_path / "manifest.yaml").write_text(
        json.dumps(manifest(huge, stream("orders", "/o", NONE)))
    )
    (tmp_path / "catalog.json").write_text(json.dumps(catalog("huge", "orders")))
    process = run_program(tmp_path, "read", "--config", shell.path.name, "--catalog=catalog.json")
    messages = [json.loads(line) for line in process.stdout.splitlines()]
    assert process.returncode == 1
    assert "streams[0].retriever.requester.path cannot be evaluated: it needs more" in message(
        messages
    )
    assert records(messages) == [{"id": 1}]


def test_the_limit_of_memory_does_not_hold_for_airbytes_engine(tmp_path: Path) -> None:
    engine = tmp_path / "engine.sh"
    engine.write_text("#!/bin/sh\nulimit -d\n")
    engine.chmod(0o755)
    (tmp_path / "manifest.yaml").write_text(json.dumps(ORDERS))
    options = ("--engine=airbyte", f"--airbyte-python={engine}", "spec")
    process = run_program(tmp_path, *options, CONNECTOR_MAX_MEMORY_MEGABYTES="300")
    own_limit = subprocess.check_output(["/bin/sh", "-c", "ulimit -d"])
    first, last = process.stdout.splitlines()
    assert last == own_limit.strip() != b"307200"
    assert json.loads(first)["log"]["level"] == "INFO"


def test_an_engine_that_does_not_check_addresses_is_a_warning_unless_the_user_has_chosen_it(
    tmp_path: Path,
) -> None:
    engine = tmp_path / "engine.sh"
    engine.write_text("#!/bin/sh\n")
    engine.chmod(0o755)
    written = json.loads(json.dumps(ORDERS))
    written["streams"][0]["file_uploader"] = {"type": "FileUploader"}
    (tmp_path / "manifest.yaml").write_text(json.dumps(written))
    process = run_program(tmp_path, f"--airbyte-python={engine}", "spec")
    log = json.loads(process.stdout)["log"]
    assert log["level"] == "WARN"
    assert "streams[0].file_uploader: FileUploader is not supported" in log["message"]
    assert "does not check the addresses of requests" in log["message"]
    assert "`engine: airbyte`" in log["message"] and "`engine: ours`" in log["message"]


def test_a_limit_of_memory_that_is_no_number_is_an_error_of_the_config(tmp_path: Path) -> None:
    (tmp_path / "manifest.yaml").write_text(json.dumps(ORDERS))
    process = run_program(tmp_path, "spec", CONNECTOR_MAX_MEMORY_MEGABYTES="much")
    error = json.loads(process.stdout)["trace"]["error"]
    assert process.returncode == 1 and error["failure_type"] == "config_error"
    assert "CONNECTOR_MAX_MEMORY_MEGABYTES is 'much'" in error["message"]


def test_pages_that_are_all_new_are_read_on(api: RecordingApi, shell: Shell) -> None:
    """Only the end of the sync ends them: they may be those of a long stream."""
    api.script = lambda _: {
        "data": [{"id": len(api.requests)}],
        "next": str(len(api.requests)) if len(api.requests) < 200 else None,
    }
    written = json.loads(json.dumps(ORDERS))
    retriever = written["streams"][0]["retriever"]
    retriever["record_selector"]["extractor"]["field_path"] = ["data"]
    retriever["paginator"] = {
        "type": "DefaultPaginator",
        "page_token_option": {
            "type": "RequestOption",
            "inject_into": "request_parameter",
            "field_name": "page",
        },
        "pagination_strategy": {
            "type": "CursorPagination",
            "cursor_value": "{{ response.next }}",
            "stop_condition": "{{ not response.next }}",
        },
    }
    assert len(records(shell.read(written, "orders"))) == 200
