"""What a source changes in its config is saved: by itself, at once, and never as a mask."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr, model_validator

from connectors.sdk import Source, Stream, SystemFailure, Window, report_config, run
from connectors.sdk.http import HttpClient, HttpStream, OAuth2RefreshToken
from connectors.sdk.items import Context, Record
from tests.connectors.support import call, catalog, errors, records
from tests.programs.json_api import JsonApi, Tokens, serving

Json = dict[str, Any]


class Credentials(BaseModel):
    refresh_token: SecretStr
    label: str = "main"


class Config(BaseModel):
    url: str = ""
    password: SecretStr = SecretStr("")
    credentials: Credentials | None = None


CONFIG = {"url": "http://x", "password": "first-password", "credentials": {"refresh_token": "r-0"}}


class Changing(Source):
    """A source that changes its config when it is checked."""

    name = "changing"
    config_type = Config

    def __init__(self, change: Callable[[Config], object]):
        self._change = change

    def check(self, config: Config) -> None:
        self._change(config)

    def streams(self, config: Config) -> Sequence[Stream]:
        return []


def assign(config: Config) -> None:
    config.password = SecretStr("second-password")


def assign_within(config: Config) -> None:
    assert config.credentials is not None
    config.credentials.refresh_token = SecretStr("r-1")


def report_copy(config: Config) -> None:
    report_config(config.model_copy(update={"password": SecretStr("second-password")}))


NEW_PASSWORD = {**CONFIG, "password": "second-password"}
NEW_TOKEN = {**CONFIG, "credentials": {"refresh_token": "r-1"}}


def list_configs(messages: list[Json]) -> list[Json]:
    return [m["control"]["connectorConfig"]["config"] for m in messages if m["type"] == "CONTROL"]


@pytest.mark.parametrize(
    ("change", "saved"),
    [(assign, NEW_PASSWORD), (assign_within, NEW_TOKEN), (report_copy, NEW_PASSWORD)],
)
def test_a_changed_value_is_saved_in_the_written_config(
    change: Callable[[Config], object], saved: Json, tmp_path: Path
) -> None:
    code, messages = call(Changing(change), tmp_path, "check", config=CONFIG)
    assert code == 0 and list_configs(messages) == [saved]  # no default is added
    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIG))
    assert run(Changing(change), ["--config", str(file), "--test"], io.BytesIO()) == 0
    assert json.loads(file.read_text()) == saved


def test_models_that_are_shared_or_frozen_stay_as_they_are(tmp_path: Path) -> None:
    class Region(BaseModel, frozen=True):
        name: str = "eu"

    shared = Credentials(refresh_token=SecretStr("r-0"))

    class Shared(Config):
        region: Region = Region()
        others: list[Credentials] = []

        @model_validator(mode="after")
        def _share(self) -> Shared:
            self.others = [shared, shared]
            return self

    def change(config: Config) -> None:
        assert isinstance(config, Shared) and type(config.region) is Region
        config.password = SecretStr("second-password")

    source = Changing(change)
    source.config_type = Shared
    for _ in range(2):
        code, messages = call(source, tmp_path, "check", config=CONFIG)
        assert code == 0 and list_configs(messages)[-1]["password"] == "second-password"


def test_a_config_is_copied_and_pickled_as_any_model_is(tmp_path: Path) -> None:
    twins: list[Config] = []

    def copy(config: Config) -> None:
        twins.append(pickle.loads(pickle.dumps(config)))
        twins.append(config.model_copy(deep=True))
        for twin in twins:
            twin.password = SecretStr("of a copy")

    _, messages = call(Changing(copy), tmp_path, "check", config=CONFIG)
    assert list_configs(messages) == []
    assert type(twins[0]) is Config and twins[0] == twins[1] == twins[0]


def test_a_mask_is_never_saved(tmp_path: Path) -> None:
    def report_dump(config: Config) -> None:
        report_config(config.model_dump(mode="json"))

    _, messages = call(Changing(report_dump), tmp_path, "check", config=CONFIG)
    assert list_configs(messages) == []
    [status] = [m["connectionStatus"] for m in messages if m["type"] == "CONNECTION_STATUS"]
    assert "a mask, and not the value, at config.password" in status["message"]
    assert "assign the new value to the field" in status["message"]
    same = {"password": "***", "url": "http://x"}  # a password that looks like a mask
    _, messages = call(Changing(assign), tmp_path, "check", config=same)
    assert list_configs(messages) == [{**same, "password": "second-password"}]


@pytest.mark.parametrize("values", [[{"key": "***"}], {"a": ["x", {"b": "****"}]}])
def test_a_mask_is_found_at_any_depth(values: Any) -> None:
    with pytest.raises(SystemFailure, match=r"at config\.v\."):
        report_config({"v": values})


class Orders(HttpStream):
    name, path = "orders", "all/orders"
    json_schema: Json = {"properties": {"id": {}}}  # noqa: RUF012 - as authors write it

    def partitions(self) -> list[Context]:
        return [{"number": number} for number in range(6)]

    def records(self, window: Window) -> Iterator[Record]:
        yield from super().records(window)


class Shop(Changing):
    """A source with two clients of one refresh token, as where `check` and `streams` each make one."""

    name = "shop"
    threads = 1

    def __init__(self) -> None:
        """Change nothing itself."""

    def client(self, config: Config) -> HttpClient:
        assert config.credentials is not None
        token = config.credentials.refresh_token.get_secret_value()
        endpoint = OAuth2RefreshToken(
            f"{config.url}/token",
            refresh_token=token,
            client_id="client",
            client_secret="client-secret",
        )
        return HttpClient(config.url, authenticator=endpoint)

    def check(self, config: Config) -> None:
        self.client(config).get("all/orders")

    def streams(self, config: Config) -> Sequence[Stream]:
        self.client(config).get("all/orders")
        stream = Orders(self.client(config))
        stream.concurrency = self.threads
        return [stream]


@pytest.fixture
def api() -> Iterator[JsonApi]:
    api = JsonApi({"orders": [{"id": 1}]}, tokens=Tokens(rotates=True, expires_in=0))
    with serving(api) as served:
        yield served


@pytest.mark.parametrize("threads", [1, 3])
def test_a_token_that_rotates_is_saved_before_it_is_used(
    api: JsonApi, threads: int, tmp_path: Path
) -> None:
    shop = Shop()
    shop.threads = threads
    config: Json = {"url": api.url, "credentials": {"refresh_token": "refresh-0", "label": "x"}}
    for _ in range(3):
        files: Json = {"config": config, "catalog": catalog("orders")}
        code, messages = call(shop, tmp_path, "read", **files)
        assert code == 0 and len(records(messages)) == 6, errors(messages)
        assert api.tokens is not None
        assert list_configs(messages)[-1] == {
            **config,
            "credentials": {"refresh_token": api.tokens.refresh_token, "label": "x"},
        }
        config = list_configs(messages)[-1]
    assert api.tokens is not None
    assert api.tokens.refresh_token not in str([m for m in messages if m["type"] != "CONTROL"])


def test_a_token_that_no_field_of_the_config_has_is_a_warning(api: JsonApi, tmp_path: Path) -> None:
    class Split(Shop):
        def client(self, config: Config) -> HttpClient:
            assert config.credentials is not None
            whole = config.model_copy(deep=True)
            assert whole.credentials is not None
            part = config.credentials.refresh_token.get_secret_value().partition("|")[2]
            whole.credentials = Credentials(refresh_token=SecretStr(part))
            return super().client(whole)

    config: Json = {"url": api.url, "credentials": {"refresh_token": "shop|refresh-0"}}
    _, messages = call(Split(), tmp_path, "check", config=config)
    assert [m["log"]["level"] for m in messages if m["type"] == "LOG"] == ["WARN"]
    assert "no field of the config has the former one" in str(messages)
