"""Every source is a Singer tap too: options, catalog, messages, state.

Spec: Singer, config and state; SDK Implementation Details - Stream State.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from connectors.sdk import Parent, Source, Stream, Window
from connectors.sdk.items import Context, Record
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import ConfiguredStream
from elt_assets.protocol.singer import Translator
from elt_assets.protocol.singer_catalog import read_catalog, selection
from tests.connectors.support import output_of

Json = dict[str, Any]
TIME = {"type": "string", "format": "date-time"}
STORES = ({"storeId": 1}, {"storeId": 2})


class Orders(Stream):
    name = "orders"
    primary_key = ("id",)
    replication_key = "updatedAt"
    json_schema: Json = {  # noqa: RUF012 - never changed
        "type": "object",
        "required": ["id", "note"],
        "properties": {
            "id": {"type": "integer"},
            "note": {"type": ["string", "null"]},
            "buyer": {"type": "object", "properties": {"name": {}, "phone": {}}},
            "storeId": {"type": "integer"},
            "updatedAt": TIME,
        },
    }

    def __init__(self, *days: int, stores: Sequence[Context] | None = None):
        self.days = days
        self.stores = stores
        self.starts: list[Any] = []

    def partitions(self) -> Iterable[Context] | None:
        return self.stores

    def records(self, window: Window) -> Iterable[Record]:
        self.starts.append(window.start)
        for day in self.days:
            at = f"2021-01-{day:02}T00:00:00Z"
            if window.start is None or at >= window.start:
                buyer = {"name": "Ada", "phone": "5"}
                yield {"id": day, "note": None, "buyer": buyer, "updatedAt": at}


class SortedOrders(Orders):
    order = "ascending"


class Countries(Stream):
    name = "countries"
    primary_key = ("code",)
    json_schema: Json = {"type": "object", "properties": {"code": {"type": "string"}}}  # noqa: RUF012

    def records(self, window: Window) -> Iterable[Record]:
        yield from ({"code": "de"}, {"code": "fr"})


class Broken(Countries):
    name = "broken"

    def records(self, window: Window) -> Iterable[Record]:
        yield {"code": "de"}
        raise ZeroDivisionError("hunter2-abc")


class Settings(BaseModel):
    api_key: SecretStr
    start_date: str | None = None
    user_agent: str | None = None


class Shop(Source):
    name = "tap-shop"
    version = "1.2.3"
    config_type = Settings

    def __init__(self, *streams: Stream):
        self.offered = streams

    def check(self, config: Settings) -> None:
        if config.api_key.get_secret_value() == "wrong":
            raise ConfigError("the key is refused")

    def streams(self, config: Settings) -> Sequence[Stream]:
        return self.offered


CONFIG: Json = {"api_key": "hunter2-abc"}


class Tap:
    """Runs a source as a tap; files are given by their content."""

    def __init__(self, folder: Path):
        self.folder = folder

    def __call__(self, source: Source, *options: str, **files: Any) -> tuple[int, list[Json]]:
        code, text = self.text(source, *options, **files)
        return code, [json.loads(line) for line in text.splitlines()]

    def text(self, source: Source, *options: str, **files: Any) -> tuple[int, str]:
        code, output = output_of(source, self.folder, *options, **{"config": CONFIG, **files})
        return code, output.decode()

    def catalog(self, source: Source, **files: Any) -> Json:
        code, text = self.text(source, "--discover", **files)
        assert code == 0
        return dict(json.loads(text))


@pytest.fixture
def tap(tmp_path: Path) -> Tap:
    return Tap(tmp_path)


def kinds(messages: Iterable[Json]) -> list[str]:
    return [message["type"] for message in messages]


def values(messages: Iterable[Json]) -> list[Json]:
    return [message["value"] for message in messages if message["type"] == "STATE"]


def records(messages: Iterable[Json]) -> list[Json]:
    return [message["record"] for message in messages if message["type"] == "RECORD"]


def root(entry: Json) -> Json:
    [found] = [each["metadata"] for each in entry["metadata"] if not each["breadcrumb"]]
    return dict(found)


@pytest.mark.spec("singer.46")
def test_a_schema_precedes_the_records_and_a_state_follows_them(tap: Tap) -> None:
    code, messages = tap(Shop(SortedOrders(1, 2)))
    assert (code, kinds(messages)) == (0, ["SCHEMA", "RECORD", "RECORD", "STATE"])
    schema = messages[0]
    assert schema["key_properties"] == ["id"]
    assert schema["bookmark_properties"] == ["updatedAt"]
    assert schema["schema"] == SortedOrders.json_schema
    assert messages[1]["time_extracted"].endswith("+00:00")


@pytest.mark.spec("sdk.12", "singer.41")
def test_the_state_equals_the_documented_example_byte_for_byte(tap: Tap) -> None:
    class Stores(SortedOrders):
        def records(self, window: Window) -> Iterable[Record]:
            day = 2 if window.partition["storeId"] == 1 else 1
            yield {"id": day, "updatedAt": f"2021-01-0{day}T00:00:00Z"}

    _, text = tap.text(Shop(Stores(stores=STORES)))
    value = text.splitlines()[-1].removeprefix('{"type":"STATE","value":').removesuffix("}")
    expected = {
        "bookmarks": {
            "orders": {
                "partitions": [
                    {
                        "context": {"storeId": 1},
                        "replication_key": "updatedAt",
                        "replication_key_value": "2021-01-02T00:00:00Z",
                    },
                    {
                        "context": {"storeId": 2},
                        "replication_key": "updatedAt",
                        "replication_key_value": "2021-01-01T00:00:00Z",
                    },
                ]
            }
        }
    }
    # Hashes of sent records stand beside the documented properties.
    assert re.sub(',"sent":"[^"]*"', "", value) == json.dumps(expected, separators=(",", ":"))


@pytest.mark.spec("singer.38")
def test_without_a_state_the_tap_starts_at_the_beginning_of_the_stream(tap: Tap) -> None:
    orders = SortedOrders(1)
    tap(Shop(orders))
    assert orders.starts == [None]


@pytest.mark.spec("singer.39")
def test_with_a_state_the_tap_starts_at_the_bookmark(tap: Tap) -> None:
    _, first = tap(Shop(SortedOrders(1, 2)))
    orders = SortedOrders(1, 2, 3)
    _, second = tap(Shop(orders), state=values(first)[-1])
    assert orders.starts == ["2021-01-02T00:00:00Z"]
    assert [record["id"] for record in records(second)] == [3]  # 2 was sent, and has not changed


@pytest.mark.spec("singer.40")
def test_the_state_file_has_the_format_of_the_emitted_state(tap: Tap) -> None:
    _, first = tap(Shop(SortedOrders(1, 2)))
    _, second = tap(Shop(SortedOrders()), state=values(first)[-1])
    assert values(second) == values(first)[-1:]


@pytest.mark.spec("singer.41")
def test_bookmarks_of_streams_that_are_not_read_are_kept(tap: Tap) -> None:
    source = Shop(SortedOrders(1))
    gone = {"replication_key": "n", "replication_key_value": 7}
    _, messages = tap(source, state={"bookmarks": {"gone": gone}, "currently_syncing": "gone"})
    assert values(messages)[-1]["bookmarks"].keys() == {"gone", "orders"}
    assert values(messages)[-1]["bookmarks"]["gone"] == gone


@pytest.mark.spec("singer.42")
def test_a_stream_without_a_replication_key_has_no_state(tap: Tap) -> None:
    _, messages = tap(Shop(Countries()))
    assert kinds(messages) == ["SCHEMA", "RECORD", "RECORD", "ACTIVATE_VERSION"]


@pytest.mark.spec("singer.42")
def test_a_full_table_has_a_version_that_is_activated_at_its_end(tap: Tap) -> None:
    _, messages = tap(Shop(Countries()))
    assert {message["version"] for message in messages[1:]} == {messages[-1]["version"]}


def test_a_full_table_read_ignores_the_state(tap: Tap) -> None:
    class Resumable(SortedOrders):
        is_resumable = True

    source = Shop(Resumable(1, 2))
    catalog = tap.catalog(source)
    catalog["streams"][0]["metadata"][0]["metadata"]["replication-method"] = "FULL_TABLE"
    _, first = tap(source)
    _, messages = tap(source, catalog=catalog, state=values(first)[-1])
    assert kinds(messages) == ["SCHEMA", "RECORD", "RECORD", "ACTIVATE_VERSION"]


@pytest.mark.spec("singer.45")
def test_a_full_table_that_fails_is_not_activated(
    tap: Tap, capsys: pytest.CaptureFixture[str]
) -> None:
    code, messages = tap(Shop(Broken(), SortedOrders(1)))
    assert (code, kinds(messages)) == (1, ["SCHEMA", "RECORD", "SCHEMA", "RECORD", "STATE"])
    logged = capsys.readouterr().err
    assert "ERROR stream broken: Traceback" in logged
    assert "hunter2" not in logged


@pytest.mark.spec("singer.45")
def test_progress_of_an_interrupted_unsorted_stream_is_ignored_on_the_next_run(tap: Tap) -> None:
    class Often(Orders):
        STATE_MSG_FREQUENCY = 1

    _, messages = tap(Shop(Often(3, 1)))
    interrupted = values(messages)[0]
    [(_, bookmark)] = interrupted["bookmarks"].items()
    assert bookmark["progress_markers"]["replication_key_value"] == "2021-01-03T00:00:00Z"
    again = Orders(3, 1)
    tap(Shop(again), state=interrupted)
    assert again.starts == [None]


@pytest.mark.spec("sdk.15")
def test_a_state_of_an_earlier_version_is_translated_by_the_source(tap: Tap) -> None:
    class Former(Shop):
        def load_state(self, state: Json) -> Json:
            mark = {"replication_key": "updatedAt", "replication_key_value": state["last"]}
            return {"bookmarks": {"orders": mark}}

    orders = SortedOrders(1, 2)
    tap(Former(orders), state={"last": "2021-01-02T00:00:00Z"})
    tap(Former(orders))  # there is nothing to translate
    assert orders.starts == ["2021-01-02T00:00:00Z", None]


def test_a_state_of_another_tap_is_refused(tap: Tap, capsys: pytest.CaptureFixture[str]) -> None:
    code, messages = tap(Shop(SortedOrders(1)), state={"cursor": 5})
    assert (code, messages) == (1, [])
    assert "the state has no `bookmarks`" in capsys.readouterr().err


@pytest.mark.spec("singer.34")
def test_the_start_date_of_the_config_is_used_on_the_first_sync(tap: Tap) -> None:
    orders = SortedOrders(1, 2)
    tap(Shop(orders), config={**CONFIG, "start_date": "2021-01-02T00:00:00Z"})
    assert orders.starts == ["2021-01-02T00:00:00Z"]


@pytest.mark.spec("singer.34")
def test_the_bookmark_takes_precedence_over_an_earlier_start_date(tap: Tap) -> None:
    orders = SortedOrders()
    mark = {"replication_key": "updatedAt", "replication_key_value": "2021-01-05T00:00:00Z"}
    config = {**CONFIG, "start_date": "2021-01-02T00:00:00Z"}
    tap(Shop(orders), config=config, state={"bookmarks": {"orders": mark}})
    assert orders.starts == ["2021-01-05T00:00:00Z"]


def test_a_stream_read_by_number_ignores_the_start_date_of_the_config(tap: Tap) -> None:
    class ByNumber(SortedOrders):
        replication_key = "id"

    orders = ByNumber(1)
    tap(Shop(orders), config={**CONFIG, "start_date": "2021-01-02T00:00:00Z"})
    assert orders.starts == [None]


@pytest.mark.spec("singer.35")
@pytest.mark.parametrize("written", ["yesterday", "2021-02-30"])
def test_an_invalid_start_date_is_refused(
    tap: Tap, capsys: pytest.CaptureFixture[str], written: str
) -> None:
    code, _ = tap(Shop(SortedOrders(1)), config={**CONFIG, "start_date": written})
    assert code == 1
    assert "config.start_date is not a date" in capsys.readouterr().err


@pytest.mark.spec("singer.34")
def test_the_start_date_may_be_a_default_of_the_config_model(tap: Tap) -> None:
    class Late(Settings):
        start_date: str | None = "2021-01-02T00:00:00Z"

    class LateShop(Shop):
        config_type = Late

    orders, others = SortedOrders(1, 2), SortedOrders(1, 2)
    tap(LateShop(orders))
    tap(LateShop(others), config={**CONFIG, "start_date": ""})
    assert [*orders.starts, *others.starts] == ["2021-01-02T00:00:00Z", None]


def test_the_start_date_does_not_exclude_children_of_older_parents(tap: Tap) -> None:
    class Old(SortedOrders):
        name = "old"

    child, parent = SortedOrders(5), Old(1)
    child.parent = Parent(parent, fields={"id": "storeId"})
    child.partitions = lambda: Stream.partitions(child)  # type: ignore[method-assign]
    _, messages = tap(Shop(parent, child), config={**CONFIG, "start_date": "2021-01-03T00:00:00Z"})
    assert [(m["stream"], m["record"]["id"]) for m in messages if m["type"] == "RECORD"] == [
        ("orders", 5)
    ]


@pytest.mark.spec("singer.47")
def test_several_configs_are_merged_and_the_last_takes_precedence(tap: Tap, tmp_path: Path) -> None:
    first = tmp_path / "first"
    first.write_text(json.dumps({"api_key": "k" * 5, "start_date": "2020-01-01T00:00:00Z"}))
    orders = SortedOrders()
    later = {**CONFIG, "start_date": "2021-01-02T00:00:00Z"}
    assert tap(Shop(orders), "--config", str(first), config=later)[0] == 0
    assert orders.starts == ["2021-01-02T00:00:00Z"]


def test_config_fields_may_be_named_like_json_schema_keywords() -> None:
    class Odd(Settings):
        discriminator: str = "x"
        writeOnly: bool = False
        default: dict[str, str] = {"writeOnly": "x"}

    class OddShop(Shop):
        config_type = Odd

    schema = OddShop().specification()
    assert {"discriminator", "writeOnly", "default"} <= schema["properties"].keys()
    assert schema["properties"]["default"]["default"] == {"writeOnly": "x"}


@pytest.mark.spec("singer.33")
def test_the_config_must_be_an_object(tap: Tap, capsys: pytest.CaptureFixture[str]) -> None:
    assert tap(Shop(), config=[])[0] == 1
    assert "the config is not JSON of the expected form" in capsys.readouterr().err


@pytest.mark.spec("singer.37")
def test_every_violation_of_the_config_is_listed(
    tap: Tap, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tap(Shop(), config={"start_date": 5})[0] == 1
    shown = capsys.readouterr().err
    assert "config.api_key: Field required" in shown
    assert "config.start_date: Input should be a valid string" in shown


@pytest.mark.spec("singer.48")
def test_the_discovered_catalog_selects_all_streams(tap: Tap) -> None:
    source = Shop(SortedOrders(1), Countries())
    _, messages = tap(source, catalog=tap.catalog(source))
    assert kinds(messages).count("SCHEMA") == 2


@pytest.mark.spec("singer.48")
def test_discovery_reports_keys_and_replication_methods(tap: Tap) -> None:
    orders, countries = tap.catalog(Shop(SortedOrders(), Countries()))["streams"]
    assert root(orders)["table-key-properties"] == ["id"]
    assert root(orders)["valid-replication-keys"] == ["updatedAt"]
    assert root(countries)["forced-replication-method"] == "FULL_TABLE"
    included = {tuple(m["breadcrumb"]): m["metadata"]["inclusion"] for m in orders["metadata"]}
    assert included["properties", "id"] == included["properties", "updatedAt"] == "automatic"
    assert included["properties", "note"] == "available"


@pytest.mark.spec("singer.48")
def test_only_selected_streams_are_read(tap: Tap) -> None:
    source = Shop(SortedOrders(1), Countries())
    catalog = tap.catalog(source)
    root_of = {entry["stream"]: entry["metadata"][0]["metadata"] for entry in catalog["streams"]}
    root_of["orders"]["selected"] = False
    _, messages = tap(source, catalog=catalog)
    assert {message["stream"] for message in messages} == {"countries"}


@pytest.mark.spec("singer.48")
def test_fields_that_are_not_selected_are_left_out_of_schema_and_records(tap: Tap) -> None:
    source = Shop(SortedOrders(1))
    catalog = tap.catalog(source)
    [entry] = catalog["streams"]
    for path in (["note"], ["buyer", "properties", "phone"], ["id"]):
        place = ["properties", *path]
        entry["metadata"].append({"breadcrumb": place, "metadata": {"selected": False}})
    _, messages = tap(source, catalog=catalog)
    [record] = records(messages)
    assert record == {"id": 1, "buyer": {"name": "Ada"}, "updatedAt": "2021-01-01T00:00:00Z"}
    schema = messages[0]["schema"]
    assert schema["properties"].keys() == {"id", "buyer", "storeId", "updatedAt"}
    assert schema["properties"]["buyer"]["properties"].keys() == {"name"}
    assert schema["required"] == ["id"]


def test_an_unsupported_replication_method_is_refused(
    tap: Tap, capsys: pytest.CaptureFixture[str]
) -> None:
    source = Shop(SortedOrders(1))
    catalog = tap.catalog(source)
    catalog["streams"][0]["metadata"][0]["metadata"]["replication-method"] = "LOG_BASED"
    assert tap(source, catalog=catalog) == (1, [])
    assert "'orders' by LOG_BASED" in capsys.readouterr().err
    source = Shop(Countries())
    catalog = tap.catalog(source)
    catalog["streams"][0]["metadata"][0]["metadata"]["replication-method"] = "INCREMENTAL"
    assert tap(source, catalog=catalog) == (1, [])
    assert "'countries' by INCREMENTAL" in capsys.readouterr().err


def test_an_unknown_stream_in_the_catalog_is_skipped_with_a_warning(
    tap: Tap, capsys: pytest.CaptureFixture[str]
) -> None:
    source = Shop(SortedOrders(1), Countries())
    catalog = tap.catalog(source)
    _, messages = tap(Shop(Countries()), catalog=catalog)
    assert {message["stream"] for message in messages} == {"countries"}
    assert "WARNING skipped stream orders" in capsys.readouterr().err


@pytest.mark.parametrize("catalog", [{}, {"streams": 5}, {"streams": [5]}])
def test_a_malformed_catalog_is_refused(tap: Tap, catalog: Json) -> None:
    assert tap(Shop(Countries()), catalog=catalog) == (1, [])


@pytest.mark.spec("singer.49")
def test_about_lists_the_settings_and_marks_secrets(tap: Tap) -> None:
    _, [about] = tap(Shop(), "--about", "--format=json", config={})
    assert about["name"] == "tap-shop"
    assert about["settings"]["properties"]["api_key"]["secret"] is True
    assert about["settings"]["required"] == ["api_key"]
    _, text = tap.text(Shop(), "--about", config={})
    assert "api_key*" in text


@pytest.mark.spec("singer.49")
def test_the_version_is_printed_as_one_line(tap: Tap) -> None:
    assert tap.text(Shop(), "--version") == (0, "tap-shop 1.2.3\n")


@pytest.mark.spec("singer.49")
def test_the_test_option_reads_a_record_of_each_stream_and_prints_none(
    tap: Tap, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tap(Shop(SortedOrders(1, 2), Countries()), "--test") == (0, [])
    assert "stream orders: a record" in capsys.readouterr().err
    assert tap(Shop(Countries()), "--test", config={"api_key": "wrong"}) == (1, [])
    assert tap(Shop(Broken()), "--test") == (0, [])


def test_states_of_many_bookmarks_are_sent_less_often(tap: Tap) -> None:
    class Often(SortedOrders):
        STATE_MSG_FREQUENCY = 1

    others = {f"stream {n}": {"replication_key_value": "x" * 1_000} for n in range(300)}
    _, messages = tap(Shop(Often(*range(1, 29))), state={"bookmarks": others})
    sizes = [len(json.dumps(value)) for value in values(messages)]
    assert sum(sizes) <= 4.1 * sizes[-1]
    [last] = values(messages)[-1:]
    assert last["bookmarks"]["orders"]["replication_key_value"] == "2021-01-28T00:00:00Z"


def test_this_project_can_read_its_own_taps(tap: Tap) -> None:
    source = Shop(SortedOrders(1), Countries())
    _, text = tap.text(source, "--discover")
    catalog = read_catalog(text.encode())
    assert [stream.sync_modes for stream in catalog.streams] == [
        ["full_refresh", "incremental"],
        ["full_refresh"],
    ]
    assert catalog.streams[0].default_cursor_field == ["updatedAt"]
    chosen = [
        ConfiguredStream(stream=stream, sync_mode=stream.sync_modes[-1])
        for stream in catalog.streams
    ]
    _, lines = tap.text(source, catalog=selection(chosen))
    translator = Translator(streams=["orders", "countries"])
    found = [m for line in lines.encode().splitlines() for m in translator.messages(line)]
    assert len(found) == 8
