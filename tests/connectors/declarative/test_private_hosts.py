"""A manifest reaches this machine and private networks only at hosts that the user's config names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.declarative.config import find_user_hosts
from connectors.declarative.source import ManifestSource
from connectors.sdk.http.addresses import AddressGuard
from elt_assets.errors import ConfigError
from elt_assets.runner.kinds import open_connector
from tests.connectors.declarative.test_credentials import OAUTH, Json, Shell, manifest, stream
from tests.connectors.support import call, catalog, errors, records
from tests.programs.recording_api import RecordingApi, serving
from tests.support.connector_specs import spec_of

NONE = {"type": "NoAuth"}
PRIVATE = [
    *("127.0.0.1", "localhost", "x.localhost", "127.1", "2130706433", "0x7f000001", "0.0.0.0"),
    *("0", "[::1]", "[::ffff:127.0.0.1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[::]"),
    *("10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "[fd12::1]", "[fec0::1]", "[64:ff9b:1::a00:1]"),
]  # fmt: skip


@pytest.fixture
def api() -> Iterator[RecordingApi]:
    with serving(RecordingApi(lambda _: [{"id": 1}])) as server:
        yield server


def ask(url: str, **requester: Any) -> Json:
    """Return a manifest whose requests go to a URL."""
    document = manifest(stream("orders", "/orders", NONE))
    document["streams"][0]["retriever"]["requester"] |= {"url_base": url, **requester}
    return document


def refusal(messages: list[Json]) -> str:
    assert not records(messages)
    (error,) = errors(messages)
    assert error["failure_type"] == "config_error"
    assert (
        "is refused: it is an address of this machine or of a private network" in error["message"]
    )
    return str(error["message"])


@pytest.mark.parametrize("host", PRIVATE)
def test_a_private_host_that_the_manifest_names_gets_no_request(
    host: str, api: RecordingApi, tmp_path: Path
) -> None:
    url = f"http://{host}:{api.url.rpartition(':')[2]}"
    shell = Shell(tmp_path, {"name": "shop"})
    refusal(shell.read(ask(url), "orders"))
    assert not api.requests


def test_a_private_host_of_the_config_is_allowed_and_so_is_one_that_is_trusted(
    api: RecordingApi, tmp_path: Path
) -> None:
    host, _, port = api.url.removeprefix("http://").partition(":")
    for config in ({"url": api.url}, {"a": [{"b": f"{host}:{port}/x"}]}, {"host": host}):
        assert records(Shell(tmp_path, config).read(ask(api.url), "orders"))
    shell = Shell(tmp_path, {"name": "shop"})
    message = refusal(shell.read(ask(api.url), "orders"))
    remedy = json.loads(message.partition("`trust: ")[2].partition("`")[0])
    assert records(shell.read(ask(api.url), "orders", trusted=remedy))


@pytest.mark.parametrize(
    "config",
    [{"url": "http://other.example"}, {"port": "1"}, {"note": "not 127.0.0.1 of course"}, {}],
)
def test_other_texts_of_the_config_allow_nothing(
    config: Json, api: RecordingApi, tmp_path: Path
) -> None:
    refusal(Shell(tmp_path, config).read(ask(api.url), "orders"))


def test_what_the_manifest_itself_puts_into_the_config_allows_nothing(
    api: RecordingApi, tmp_path: Path
) -> None:
    field = {"type": "AddedFieldDefinition", "path": ["url"], "value": api.url}
    adds = {"type": "ConfigAddFields", "fields": [field]}
    migration = {"type": "ConfigMigration", "transformations": [adds]}
    schema = {"type": "object", "properties": {"url": {"type": "string", "default": api.url}}}
    spec: Json = {"type": "Spec", "connection_specification": {"type": "object"}}
    document = ask("{{ config['url'] }}")
    rules = {"config_migrations": [migration]}
    migrated = {**document, "spec": {**spec, "config_normalization_rules": rules}}
    transformed = {
        **document,
        "spec": {**spec, "config_normalization_rules": {"transformations": [adds]}},
    }
    default = {**document, "spec": {**spec, "connection_specification": schema}}
    shell = Shell(tmp_path, {})
    refusal(shell.read(migrated, "orders"))
    refusal(shell.read(transformed, "orders"))
    refusal(Shell(tmp_path, {"url": api.url}).read(default, "orders"))
    # The next run gets the migrated config; the runner says which places the source has changed.
    files = {"config": {"url": api.url}, "catalog": catalog("orders")}
    _, messages = call(
        ManifestSource(json.dumps(migrated), changed=[["url"]]), tmp_path, "read", **files
    )
    refusal(messages)
    assert not api.requests


@pytest.mark.parametrize("kind", ["token", "login", "parts", "path", "default"])
def test_each_way_to_another_host_is_guarded(kind: str, api: RecordingApi, tmp_path: Path) -> None:
    document = ask("{{ config['url'] }}")
    requester = document["streams"][0]["retriever"]["requester"]
    if kind == "token":
        requester["authenticator"] = {**OAUTH, "token_refresh_endpoint": f"{api.url}/token"}
    elif kind == "login":
        login = {"type": "HttpRequester", "url_base": api.url, "http_method": "POST"}
        requester["authenticator"] = {
            "type": "SessionTokenAuthenticator",
            "login_requester": {**login, "path": "/token"},
            "session_token_path": ["access_token"],
            "request_authentication": {"type": "Bearer"},
        }
    elif kind == "parts":
        requester["url_base"] = api.url.replace("127.0.0.1", "{{ '127.0.' ~ '0.1' }}")
    elif kind == "path":
        requester["path"] = f"{api.url}/orders"
    else:
        requester["url_base"] = f"{{{{ config.get('missing') or '{api.url}' }}}}"
    config = {"url": "https://api.example", "credentials": {"refresh_token": "r"}}
    refusal(Shell(tmp_path, config).read(document, "orders"))
    assert not api.requests


def test_a_name_that_resolves_to_a_private_address_is_refused() -> None:
    guard = AddressGuard(find_user_hosts({"url": "https://api.example"}, [], {}))
    for host in ("api.example", "rebound.example"):
        guard.add_named(host)
    guard.check("api.example", ["10.0.0.1"])
    guard.check("rebound.example", ["8.8.8.8"])
    for address in ("10.0.0.1", "127.0.0.1", "::1", "fd00::1", "0.0.0.0", "224.0.0.1"):
        with pytest.raises(ConfigError, match="is refused"):
            guard.check("rebound.example", ["8.8.8.8", address])


@given(st.ip_addresses())
def test_each_address_that_is_not_public_is_refused(address: Any) -> None:
    guard = AddressGuard(())
    guard.add_named(str(address))
    if address.is_private or address.is_loopback or address.is_link_local or address.is_multicast:
        with pytest.raises(ConfigError, match="is refused"):
            guard.check_host(str(address))


@given(st.integers(0, 2**32 - 1).map(str) | st.floats(0, 300).map("{:.3f}".format))
def test_a_number_in_the_config_is_no_host(number: str) -> None:
    assert not find_user_hosts({"limit": number}, [], {})


def test_a_host_that_the_manifest_has_saved_in_the_config_is_not_the_users(tmp_path: Path) -> None:
    """Its migration is stored, so the next process gets it as a part of the config."""
    with serving(RecordingApi(lambda _: [{"id": 1}])) as inner:
        field = {"type": "AddedFieldDefinition", "path": ["url"], "value": inner.url}
        adds = {"type": "ConfigAddFields", "fields": [field]}
        rules = {"config_migrations": [{"type": "ConfigMigration", "transformations": [adds]}]}
        spec = {"connection_specification": {"type": "object"}, "config_normalization_rules": rules}
        orders = stream("orders", "/orders", {"type": "NoAuth"})
        document = manifest(orders, spec={"type": "Spec", **spec})
        (tmp_path / "manifest.yaml").write_text(json.dumps(document))
        file, store = str(tmp_path / "manifest.yaml"), tmp_path / "changes.json"
        connector = open_connector(spec_of("manifest", file, tmp_path, store=store))
        for _ in range(2):
            assert "is refused" in str(connector.check().message)
            assert connector.config == {"url": inner.url}
        assert not inner.requests
