"""Credentials of a manifest: where they are sent, and how new ones are saved."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from connectors.declarative.source import ManifestSource
from tests.connectors.support import call, catalog, errors, records
from tests.programs.json_api import Answer
from tests.programs.recording_api import Received, RecordingApi, routes, serving

Json = dict[str, Any]
KEY = {
    "type": "ApiKeyAuthenticator",
    "api_token": "{{ config['key'] }}",
    "inject_into": {"type": "RequestOption", "inject_into": "header", "field_name": "X-Key"},
}
OAUTH = {
    "type": "OAuthAuthenticator",
    "token_refresh_endpoint": "{{ config['url'] }}/token",
    "client_id": "me",
    "client_secret": "secret",
    "refresh_token": "{{ config['credentials']['refresh_token'] }}",
    "refresh_token_updater": {},
}


@pytest.fixture
def api() -> Iterator[RecordingApi]:
    with serving(RecordingApi()) as found:
        yield found


@pytest.fixture
def other() -> Iterator[RecordingApi]:
    """An API at another origin, to which the first one links."""
    with serving(RecordingApi(lambda _: [{"id": 2}])) as found:
        found.url = found.url.replace("127.0.0.1", "localhost")
        yield found


def stream(name: str, path: str, auth: Json, url: str = "{{ config['url'] }}", **more: Any) -> Json:
    return {
        "type": "DeclarativeStream",
        "name": name,
        "primary_key": "id",
        "retriever": {
            "type": "SimpleRetriever",
            "requester": {
                "type": "HttpRequester",
                "url_base": url,
                "path": path,
                "authenticator": auth,
                "request_headers": {"X-Secret": "{{ config['key'] }}"},
            },
            "record_selector": {
                "type": "RecordSelector",
                "extractor": {"type": "DpathExtractor", "field_path": []},
            },
            **more,
        },
    }


def by_id(parent: Json, key: str) -> Json:
    config = {
        "type": "ParentStreamConfig",
        "stream": parent,
        "parent_key": key,
        "partition_field": "parent",
    }
    return {
        "partition_router": {"type": "SubstreamPartitionRouter", "parent_stream_configs": [config]}
    }


class Shell:
    """Runs commands of a manifest with a config in a file."""

    def __init__(self, folder: Path, config: Mapping[str, Any]):
        self.folder = folder
        self.path = folder / "config.json"
        self.path.write_text(json.dumps(config))

    @property
    def config(self) -> Json:
        found: Json = json.loads(self.path.read_text())
        return found

    def run(
        self, written: Json, command: str, trusted: Sequence[str] = (), **files: Any
    ) -> list[Json]:
        words = (command, "--config", str(self.path))
        source = ManifestSource(json.dumps(written), trusted)
        self.code, messages = call(source, self.folder, *words, **files)
        return messages

    def read(self, written: Json, *names: str, trusted: Sequence[str] = ()) -> list[Json]:
        return self.run(written, "read", trusted, catalog=catalog(*names))


def manifest(*streams: Json, **more: Any) -> Json:
    check = {"type": "CheckStream", "stream_names": [streams[-1]["name"]]}
    return {
        "version": "6.0.0",
        "type": "DeclarativeSource",
        "streams": list(streams),
        "check": check,
    } | more


def controls(messages: Sequence[Json]) -> list[Json]:
    found = [each["control"] for each in messages if each["type"] == "CONTROL"]
    return [each["connectorConfig"]["config"] for each in found]


LINKS = ["{{ stream_partition.parent }}", "{{ stream_partition['parent'] }}/more"]


@pytest.mark.parametrize("path", LINKS)
@pytest.mark.parametrize("is_in_base", [False, True])
def test_an_origin_that_the_api_names_gets_no_credentials(
    api: RecordingApi, other: RecordingApi, tmp_path: Path, path: str, is_in_base: bool
) -> None:
    parent = stream("parents", "/parents", KEY)
    api.script = routes({"/parents": [{"id": 1, "url": f"{other.url}/children"}]})
    more = by_id(parent, "url")
    child = stream("children", "" if is_in_base else path, KEY, **more)
    if is_in_base:
        child["retriever"]["requester"]["url_base"] = path
    messages = Shell(tmp_path, {"url": api.url, "key": "k1"}).read(manifest(child), "children")
    assert records(messages) == [{"id": 2}]
    (received,) = other.requests
    assert "x-key" not in received.headers and "x-secret" not in received.headers


def test_an_origin_that_the_user_trusts_gets_credentials(
    api: RecordingApi, other: RecordingApi, tmp_path: Path
) -> None:
    parent = stream("parents", "/parents", KEY)
    api.script = routes({"/parents": [{"id": 1, "url": f"{other.url}/children"}]})
    child = stream("children", LINKS[0], KEY, **by_id(parent, "url"))
    shell = Shell(tmp_path, {"url": api.url, "key": "k1"})
    shell.read(manifest(child), "children", trusted=[other.url])
    (received,) = other.requests
    assert received.headers["x-key"] == received.headers["x-secret"] == "k1"


def test_a_new_refresh_token_is_saved_without_what_the_check_overrides(
    api: RecordingApi, tmp_path: Path
) -> None:
    api.script = routes(
        {"/token": {"access_token": "a", "refresh_token": "r2"}, "/orders": [{"id": 1}]}
    )
    rules = {
        "type": "ConfigNormalizationRules",
        "transformations": [
            {
                "type": "ConfigAddFields",
                "fields": [{"type": "AddedFieldDefinition", "path": ["size"], "value": "7"}],
            }
        ],
    }
    spec = {"type": "Spec", "connection_specification": {}, "config_normalization_rules": rules}
    written = manifest(stream("orders", "/orders", OAUTH), spec=spec)
    written["check"]["config_overrides"] = {"key": "overridden"}
    config = {"url": api.url, "key": "mine", "credentials": {"refresh_token": "r1"}}
    shell = Shell(tmp_path, config)
    (saved,) = controls(shell.run(written, "check"))
    tokens = saved.pop("credentials")
    assert saved == {"url": api.url, "key": "mine"}
    assert (tokens["access_token"], tokens["refresh_token"]) == ("a", "r2")


def single_use(tokens: list[str], records: Any) -> Any:
    """Return a script of an API whose refresh tokens can be used once; `tokens` has those it issued."""

    def script(request: Received) -> Any:
        if request.path != "/token":
            return records(request) if callable(records) else records
        if dict(request.form)["refresh_token"] != tokens[-1]:
            return Answer(400, {"error": "invalid_grant"})
        tokens.append(f"r{len(tokens) + 1}")
        return {"access_token": f"a{len(tokens)}", "refresh_token": tokens[-1], "expires_in": 0}

    return script


def test_the_test_of_a_tap_uses_the_token_that_its_check_got(
    api: RecordingApi, tmp_path: Path
) -> None:
    tokens = ["r1"]
    api.script = single_use(tokens, [{"id": 1}])
    shell = Shell(tmp_path, {"url": api.url, "key": "k", "credentials": {"refresh_token": "r1"}})
    shell.run(manifest(stream("orders", "/orders", OAUTH)), "--test")
    assert shell.code == 0
    assert len(tokens) > 2
    assert shell.config["credentials"]["refresh_token"] == tokens[-1]


def test_a_new_refresh_token_is_saved_if_the_read_fails_in_another_thread(
    api: RecordingApi, tmp_path: Path
) -> None:
    tokens, is_renewing = ["r1"], threading.Event()

    def records(request: Received) -> Any:
        if request.params["day"] == "2024-01-01":
            is_renewing.wait(10)
            return Answer(404, {"message": "gone"})
        return []

    answer = single_use(tokens, records)

    def script(request: Received) -> Any:
        if request.path == "/token" and len(tokens) > 2:
            is_renewing.set()
            time.sleep(0.5)
        return answer(request)

    api.script = script
    orders = stream("orders", "/orders", OAUTH)
    day = {"type": "RequestOption", "inject_into": "request_parameter", "field_name": "day"}
    orders["incremental_sync"] = {
        "type": "DatetimeBasedCursor",
        "cursor_field": "day",
        "datetime_format": "%Y-%m-%d",
        "start_datetime": "2024-01-01",
        "end_datetime": "2024-02-01",
        "step": "P1D",
        "cursor_granularity": "P1D",
        "start_time_option": day,
    }
    level = {"type": "ConcurrencyLevel", "default_concurrency": 3}
    shell = Shell(tmp_path, {"url": api.url, "key": "k", "credentials": {"refresh_token": "r1"}})
    messages = shell.read(manifest(orders, concurrency_level=level), "orders")
    assert shell.code == 1
    assert controls(messages)[-1]["credentials"]["refresh_token"] == tokens[-1]


def test_parents_with_different_bodies_share_no_cached_response(
    api: RecordingApi, tmp_path: Path
) -> None:
    def script(request: Received) -> Any:
        if request.path == "/parents":
            return [{"id": request.json["kind"]}]
        return [{"id": request.path}]

    api.script = script
    parents = []
    for kind in ("a", "b"):
        parent = stream(kind, "/parents", KEY)
        parent["retriever"]["requester"]["request_body_json"] = {"kind": kind}
        parents.append(by_id(parent, "id")["partition_router"]["parent_stream_configs"][0])
    router = {"type": "SubstreamPartitionRouter", "parent_stream_configs": parents}
    child = stream(
        "children", "/children/{{ stream_partition.parent }}", KEY, partition_router=router
    )
    messages = Shell(tmp_path, {"url": api.url, "key": "k"}).read(manifest(child), "children")
    found = [each["id"] for each in records(messages)]
    assert found == ["/children/a", "/children/b"]


def test_a_read_does_not_ask_the_api_for_a_schema_that_the_catalog_has(
    api: RecordingApi, tmp_path: Path
) -> None:
    api.script = routes({"/orders": [{"id": 1}], "/schema": Answer(403, {})})
    described = stream("orders", "/orders", KEY)
    described["schema_loader"] = {
        "type": "DynamicSchemaLoader",
        "retriever": stream("fields", "/schema", KEY)["retriever"],
        "schema_type_identifier": {"key_pointer": ["name"]},
    }
    shell = Shell(tmp_path, {"url": api.url, "key": "k"})
    shell.read(manifest(described), "orders")
    assert shell.code == 0
    assert [request.path for request in api.requests] == ["/orders"]


def test_an_absolute_path_that_the_manifest_names_gets_everything(
    api: RecordingApi, other: RecordingApi, tmp_path: Path
) -> None:
    orders = stream("orders", "{{ config['other'] }}/orders", KEY)
    orders["retriever"]["requester"] |= {"http_method": "POST", "request_body_json": {"a": 1}}
    config = {"url": api.url, "other": other.url, "key": "k1"}
    Shell(tmp_path, config).read(manifest(orders), "orders")
    (received,) = other.requests
    assert (received.method, received.json, received.headers["x-key"]) == ("POST", {"a": 1}, "k1")


def test_a_host_that_the_api_names_must_be_trusted_to_get_parameters(
    api: RecordingApi, other: RecordingApi, tmp_path: Path
) -> None:
    parent = stream("parents", "/parents", KEY)
    api.script = routes({"/parents": [{"id": 1, "url": other.url}]})
    child = stream("children", "/x", KEY, LINKS[0], **by_id(parent, "url"))
    child["retriever"]["requester"]["request_parameters"] = {"since": "2024"}
    shell = Shell(tmp_path, {"url": api.url, "key": "k1"})
    messages = shell.read(manifest(child), "children")
    (error,) = errors(messages)
    assert f"trust its origin: {other.url}" in error["message"]
    assert not other.requests
    shell.read(manifest(child), "children", trusted=[other.url])
    assert other.requests[0].params == {"since": "2024"}


def test_a_secret_that_a_migration_moves_is_masked(api: RecordingApi, tmp_path: Path) -> None:
    api.script = lambda _: Answer(400, {"message": "no SECRETTOK123 here"})
    rules = {
        "type": "ConfigNormalizationRules",
        "config_migrations": [
            {
                "type": "ConfigMigration",
                "transformations": [
                    {
                        "type": "ConfigAddFields",
                        "fields": [
                            {
                                "type": "AddedFieldDefinition",
                                "path": ["token"],
                                "value": "{{ config['old'] }}",
                            }
                        ],
                    }
                ],
            }
        ],
    }
    token = {"token": {"type": "string", "airbyte_secret": True}}
    spec = {
        "type": "Spec",
        "connection_specification": {"properties": token},
        "config_normalization_rules": rules,
    }
    orders = stream("orders", "/bot{{ config['token'] }}/orders", {"type": "NoAuth"})
    config = {"url": api.url, "key": "k", "old": "SECRETTOK123"}
    messages = Shell(tmp_path, config).read(manifest(orders, spec=spec), "orders")
    shown = [each for each in messages if each["type"] != "CONTROL"]
    assert "ERROR" in json.dumps(shown)
    assert "SECRETTOK123" not in json.dumps(shown)


def test_a_refused_refresh_token_is_tried_once(api: RecordingApi, tmp_path: Path) -> None:
    api.script = routes({"/token": Answer(400, {"error": "invalid_grant"}), "/orders": []})
    streams = [stream(name, "/orders", OAUTH) for name in ("orders", "returns")]
    shell = Shell(tmp_path, {"url": api.url, "key": "k", "credentials": {"refresh_token": "r1"}})
    shell.read(manifest(*streams), "orders", "returns")
    assert shell.code == 1
    assert len(api.requests) == 1
