"""Tests of a connection's YAML: what is accepted, and the error for everything else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import Raw

from elt_assets import definitions_for
from elt_assets.cli.lookup import catalog_stream
from elt_assets.connection import (
    Connection,
    describe_broken_fields,
    describe_unused_settings,
    load_catalog,
    load_connection,
    place_in,
    resolve_streams,
)
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import AirbyteStream, Catalog, ConfiguredStream, StreamId
from elt_assets.protocol.singer_catalog import selection

Json = dict[str, Any]
MODES = ["full_refresh", "incremental"]
SCHEMA = {
    "properties": {
        "id": {"type": "integer"},
        "updated_at": {"type": "string"},
        "meta": {"properties": {"version": {"type": "integer"}}},
        "blob": {"type": "object"},
    }
}


def declare(stream: Json | None = None, /, **attributes: Any) -> Json:
    source = {"connector": "faker", "config": {"count": 3}}
    streams = [{"name": "users", **(stream or {})}]
    return {"name": "shop", "source": source, "streams": streams, **attributes}


def load(folder: Path, attributes: Any) -> Connection:
    document = {"type": "elt_assets.ConnectionComponent", "attributes": attributes}
    (folder / "defs.yaml").write_text(yaml.safe_dump(document, allow_unicode=True), "utf-8")
    return load_connection(folder)


def refusal(folder: Path, attributes: Any) -> str:
    with pytest.raises(ConfigError) as error:
        load(folder, attributes)
    assert str(folder / "defs.yaml") in str(error.value)
    return str(error.value)


def catalog(**stream: Any) -> Catalog:
    source: Json = {"name": "users", "json_schema": SCHEMA, "supported_sync_modes": MODES, **stream}
    return Catalog(streams=[AirbyteStream(**source)])


def configure(folder: Path, stream: Json, **source: Any) -> ConfiguredStream:
    [configured] = resolve_streams(load(folder, declare(stream)), catalog(**source))
    return configured


def misfit(folder: Path, stream: Json, **source: Any) -> str:
    """Return the error for a stream that does not match its catalog."""
    with pytest.raises(ConfigError) as error:
        configure(folder, stream, **source)
    assert "defs.yaml of connection 'shop'" in error.value.message
    assert "stream 'users'" in error.value.message
    return error.value.message


def test_all_attributes_of_a_connection_are_read(tmp_path: Path) -> None:
    stream = {
        "name": "users",
        "namespace": "público",
        "sync_mode": "incremental",
        "destination_sync_mode": "append_dedup",
        "cursor_field": ["updated_at"],
        "primary_key": [["id"]],
        "history": True,
        "on_schema_change": "freeze",
        "fields": {"include": None, "exclude": [["ssn"]], "hash": [["email"]]},
        "window": {"bind": {"start": ["from"], "end": ["to"], "format": "%s", "inclusive": True}},
        "automation": {"on_cron": "0 6 * * *", "timezone": "UTC"},
        "schedule": "0 7 * * *",
        "description": "people",
        "owners": ["team:data"],
        "tags": {"tier": "gold"},
    }
    connection = load(
        tmp_path,
        declare(
            streams=[stream],
            schedule="0 6 * * *",
            automation="eager",
            checks={"rejected": {"max": 0.5}, "counts": False},
            freshness={"fail_after": "1d"},
            drift={"policy": "update", "every": "6h"},
            namespace="raw",
            checkpoint={"rows": 10, "megabytes": 1, "seconds": 0.5},
        ),
    )
    assert connection.lake_namespace == "raw"
    assert connection.source.kind == "connector"
    assert connection.streams[0].model_dump(exclude_unset=True) == stream
    assert (connection.automation, connection.checks.counts.enabled) == ("eager", False)
    assert connection.checkpoint.seconds == 0.5
    assert load(tmp_path, declare(read_together=True)).read_together


@pytest.mark.spec("protocol.65")
def test_optional_attributes_have_defaults(tmp_path: Path) -> None:
    connection = load(
        tmp_path, {"name": "a", "source": {"command": ["x"]}, "streams": [{"name": ""}]}
    )
    [stream] = connection.streams
    assert (stream.sync_mode, stream.destination_sync_mode) == ("full_refresh", "append")
    assert (stream.history, stream.on_schema_change, stream.fields) == (False, "evolve", None)
    assert (connection.lake_namespace, connection.read_together) == ("a", False)
    assert connection.checkpoint.rows == 1_000_000


@pytest.mark.spec("singer.3")
def test_a_date_in_the_config_is_kept_as_text(tmp_path: Path) -> None:
    text = yaml.safe_dump({"type": "elt_assets.ConnectionComponent", "attributes": declare()})
    (tmp_path / "defs.yaml").write_text(text.replace("count: 3", "start: 2026-01-01"))
    assert load_connection(tmp_path).source.config == {"start": "2026-01-01"}


def test_environment_variables_are_not_read_when_a_connection_is_loaded(tmp_path: Path) -> None:
    config = {"key": {"env": "SURELY_NOT_SET"}}
    source = load(tmp_path, declare(source={"connector": "faker", "config": config})).source
    assert source.config == config


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        (declare(stream=[]), "connection of 'shop': unknown key 'stream'; did you mean 'streams'?"),
        (declare({"sync_mod": "x"}), "stream 'users': unknown key 'sync_mod'; did you mean 'sync_mode'?"),
        (declare(source={"conector": "x"}), "source: unknown key 'conector'; did you mean 'connector'?"),
        (declare(checkpoint={"row": 1}), "checkpoint: unknown key 'row'; did you mean 'rows'?"),
        (declare(zzz=1), "unknown key 'zzz'; known keys are automation, checkpoint, "),
    ],
)  # fmt: skip
def test_an_unknown_key_is_refused_with_a_suggestion(
    attributes: Json, expected: str, tmp_path: Path
) -> None:
    text = refusal(tmp_path, attributes)
    assert expected in text.replace("stream 'users': stream of 'users': ", "stream 'users': ")


@pytest.mark.parametrize("role", ["source", "destination"])
@pytest.mark.parametrize("user", ["connectors", None, 5, {"env": "USER"}])
def test_another_user_of_the_machine_is_refused_with_the_way_out(
    role: str, user: Any, tmp_path: Path
) -> None:
    text = refusal(tmp_path, declare(**{role: {"command": ["x"], "user": user}}))
    assert f"{role}: unknown key 'user'; a connector cannot run as another user" in text
    assert "run it in a container, by `image`" in text
    load(tmp_path, declare(**{role: {"image": "airbyte/x:1"}}))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({}, "given: none"),
        ({"connector": "a", "command": ["b"]}, "given: connector, command"),
        ({"command": []}, "source.command: "),
        ({"command": "source-x"}, "source.command: "),
        ({"connector": "a", "config": ["x"]}, "source.config: "),
    ],
)
def test_a_source_without_exactly_one_connector_is_refused(
    source: Json, expected: str, tmp_path: Path
) -> None:
    assert expected in refusal(tmp_path, declare(source=source))


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        (declare({"sync_mode": "full"}), "stream 'users': sync_mode: Input should be 'full_refresh' or"),
        (declare({"destination_sync_mode": "x"}), "stream 'users': destination_sync_mode: "),
        (declare({"on_schema_change": "x"}), "stream 'users': on_schema_change: "),
        (declare({"primary_key": ["id"]}), "stream 'users': primary_key.0: "),
        (declare({"primary_key": []}), "stream 'users': primary_key: "),
        (declare({"cursor_field": []}), "stream 'users': cursor_field: "),
        (declare({"cursor_field": "id"}), "stream 'users': cursor_field: "),
        (declare({"name": 5}), "stream 5: name: "),
        (declare(streams=[{}]), "streams[0]: name: "),
        (declare(streams=["users"]), "streams[0]: "),
        (declare(streams=[]), "streams: "),
        (declare(streams={"users": {}}), "streams: "),
        (declare(name="../x"), "name: "),
        (declare(namespace=""), "namespace: "),
        (declare(checkpoint={"rows": 0}), "checkpoint.rows: "),
        ({}, "name: Field required"),
        (None, "`attributes` is missing"),
        ([], "`attributes` is missing"),
    ],
)  # fmt: skip
def test_an_invalid_value_is_reported_with_its_path(
    attributes: Any, expected: str, tmp_path: Path
) -> None:
    assert expected in refusal(tmp_path, attributes)


def test_all_errors_are_reported_together(tmp_path: Path) -> None:
    streams = [{"name": "a", "sync_mode": 1}, {"name": "b", "primary_key": 1}]
    text = refusal(tmp_path, declare(streams=streams, name="a b", checkpoint={"seconds": -1}))
    for part in ("\n  - name: ", "stream 'a': sync", "stream 'b': prim", "checkpoint.seconds"):
        assert part in text


def test_keys_that_do_not_go_together_are_refused_at_once_when_they_are_loaded(
    tmp_path: Path,
) -> None:
    streams = [
        {"name": "users", "window": {"bind": {"start": "from"}}, "pool": "mine"},
        {"name": "users", "history": True, "dead_letter": "asset"},
        {"name": "new", **DEDUP, "timezone": "UTC"},
    ]
    other = {"destination": {"command": ["d"]}, "read_together": True, "new_data": {"read": True}}
    full = {"source": {"command": ["x"]}, "full_refresh": "0 3 * * 0"}
    text = refusal(tmp_path, declare(streams=streams, **other, **full))
    for part in (
        "\n  - new_data: `read` starts a separate read",
        "\n  - dead_letter: with another `destination`",
        "\n  - stream 'users' is configured twice; remove one",
        "\n  - stream 'users': window: not supported for streams that are read together",
        "\n  - stream 'users': pool: streams that are read together have it in common",
        "\n  - stream 'users': history: versions need a key",
        "\n  - stream 'users': history: only tables of the lake support this",
        "\n  - stream 'new': timezone: the stream has no cron expression of its own",
    ):
        assert part in text


YAML = """\
type: elt_assets.ConnectionComponent
attributes:
  name: shop
  source: {command: [source-x]}
  checkpoint:
    rows: 0
  streams:
    - name: users
      fields:
        hash: []
    - {name: users, namespace: x, sync_mod: full_refresh}
    - description: nameless
"""
OVERLAY = """\
attributes:
  streams:
    - name: users
      fields:
        hash: []
"""


def test_a_problem_is_reported_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "defs.yaml").write_text(YAML)
    with pytest.raises(ConfigError) as error:
        load_connection(tmp_path)
    lines = {line.rpartition(" (")[::2] for line in error.value.message.splitlines()[1:]}
    assert {(text.removeprefix("  - ").rpartition(": ")[0], place) for text, place in lines} == {
        ("checkpoint.rows", "line 6)"),
        ("stream 'users': fields.hash", "line 10)"),
        ("stream 'x.users': stream of 'users'", "line 11)"),
        ("streams[2]: name", "line 12)"),
    }
    (tmp_path / "defs.dev.yaml").write_text(OVERLAY)
    monkeypatch.setenv("ELT_ENV", "dev")
    with pytest.raises(ConfigError) as error:
        load_connection(tmp_path)
    assert "stream 'users': fields.hash: " in error.value.message
    for place in ("(defs.dev.yaml, line 5)", "(line 6)", "(line 11)", "(line 12)"):
        assert place in error.value.message


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a: [p4ss", "is not valid YAML"),
        (b"a: p4ss: p4ss", "is not valid YAML"),
        (b"a: \xff", "is not valid YAML"),
        (b"[" * 5000, "cannot be loaded: it has values in values more than 100 levels deep"),
        (b"", "is not a component: it has no `type`\nbegin it with `type: elt_assets.Connection"),
        (b"- type: elt_assets.ConnectionComponent", "is not a component: it has no `type`"),
        (b"type: elt_assets.Connection", "is not a connection"),
    ],
)
def test_a_malformed_connection_file_is_refused(
    content: bytes, expected: str, tmp_path: Path
) -> None:
    (tmp_path / "defs.yaml").write_bytes(content)
    with pytest.raises(ConfigError) as error:
        load_connection(tmp_path)
    assert f"{tmp_path / 'defs.yaml'} {expected}" in str(error.value)
    assert "p4ss" not in str(error.value)


def load_shop(folder: Path) -> Connection:
    return load_connection(place_in(folder, "shop"))


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ("source: p4ss", "defs.yaml: unknown keys beside `attributes`: source"),
        ("---\n", "defs.yaml: document 2 is not a component: it has no `type`"),
    ],
)
def test_a_file_that_dagster_does_not_load_is_refused(
    rest: str, expected: str, tmp_path: Path
) -> None:
    file = tmp_path / "defs.yaml"
    file.write_text(f"type: elt_assets.ConnectionComponent\nattributes: {{name: shop}}\n{rest}")
    for load_file in (load_shop, definitions_for):
        with pytest.raises(ConfigError) as error:
            load_file(tmp_path)
        assert expected in str(error.value)
        assert "p4ss" not in str(error.value)


def test_an_unknown_connection_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    load(tmp_path / "shop", declare())
    with pytest.raises(ConfigError, match=r"no connection 'shopp'.*\nknown connections: shop"):
        load_connection(tmp_path / "shopp")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"{}", b'{"streams": [{"name": "a"}]}', b"\xff", b"[" * 5000]
)
def test_a_malformed_catalog_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "catalog.json").write_bytes(content)
    with pytest.raises(ConfigError) as error:
        load_catalog(tmp_path)
    assert f"{tmp_path / 'catalog.json'} is not a valid catalog" in error.value.message
    assert error.value.guidance == f"write it with `elt discover {tmp_path.name}`"


def test_a_missing_catalog_is_refused_and_an_existing_one_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"catalog\.json does not exist\n.*`elt discover "):
        load_catalog(tmp_path)
    text = json.dumps(json.loads(catalog().to_json()), indent=2)
    (tmp_path / "catalog.json").write_text(text)
    assert load_catalog(tmp_path) == catalog()


@pytest.mark.spec("protocol.25")
def test_a_configured_stream_has_the_effective_cursor_and_key(tmp_path: Path) -> None:
    settings = {"sync_mode": "incremental", "destination_sync_mode": "append_dedup"}
    own = {"default_cursor_field": ["updated_at"], "source_defined_primary_key": [["id"]]}
    stream = configure(tmp_path, settings, **own)
    assert (stream.sync_mode, stream.destination_sync_mode) == ("incremental", "append_dedup")
    assert (stream.cursor_field, stream.primary_key) == (["updated_at"], [["id"]])


@pytest.mark.parametrize(
    ("settings", "source", "expected"),
    [
        ({"name": "user"}, {}, "stream 'user' is not in the catalog (catalog.json); did you mean 'users'?"),
        ({"name": "zzz"}, {}, "stream 'zzz' is not in the catalog (catalog.json); it has 'users'"),
        ({"namespace": "x"}, {}, "stream 'x.users' is not in the catalog"),
    ],
)  # fmt: skip
def test_a_stream_that_the_catalog_lacks_is_refused(
    settings: Json, source: Json, expected: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as error:
        configure(tmp_path, settings, **source)
    assert expected in error.value.message


INCREMENTAL = {"sync_mode": "incremental"}
DEDUP = {"destination_sync_mode": "append_dedup"}
OWN_KEY = {"source_defined_primary_key": [["a"], ["b"]], "json_schema": {}}
LOG_BASED = {"replication_method": "LOG_BASED"}


def make_tap_properties(metadata: Json) -> Json:
    """Properties of a stream that a Singer tap has."""
    schema = {"properties": {"id": {"type": "integer"}}}
    root = {"breadcrumb": [], "metadata": metadata}
    entry = {"stream": "users", "metadata": [root], "schema": schema}
    return {"extra": {"singer": Raw(json.dumps(entry).encode())}}


OWN_CURSOR = {"source_defined_cursor": True, "default_cursor_field": ["id"]}


@pytest.mark.spec("protocol.66", "protocol.68", "protocol.72")
@pytest.mark.parametrize(
    ("settings", "source", "expected"),
    [
        (
            INCREMENTAL | {"cursor_field": ["id"]},
            {"supported_sync_modes": ["full_refresh"]},
            "sync_mode: 'incremental' is not supported by the source; write one of full_refresh",
        ),
        (
            INCREMENTAL,
            {},
            "cursor_field: .* nor the source names a cursor field.*set `cursor_field: ",
        ),
        (
            INCREMENTAL | {"cursor_field": ["updated"]},
            {},
            "cursor_field: the stream has no field 'updated'; did you mean 'updated_at'",
        ),
        (DEDUP, {}, r"primary_key: append_dedup needs one .*write `primary_key: \[\[<field>\]\]`"),
        (
            DEDUP | {"primary_key": [["id"], ["ix"]]},
            {},
            "primary_key: the stream has no field 'ix'",
        ),
        (
            DEDUP | {"primary_key": [["meta", "x"]]},
            {},
            r"primary_key: .* no field 'meta\.x'; 'meta' has version",
        ),
        (
            DEDUP | {"primary_key": [["blob"]]},
            {"source_defined_primary_key": [["id"]]},
            r"primary_key: .* cannot be overridden; write \[\[id\]\], or leave it out",
        ),
        (INCREMENTAL | LOG_BASED, {}, "'users' was not discovered from a Singer tap; "),
        (
            INCREMENTAL | LOG_BASED,
            make_tap_properties({"forced-replication-method": "INCREMENTAL"}),
            "only by INCREMENTAL; remove `replication_method`",
        ),
    ],
)
def test_settings_that_the_stream_does_not_support_are_refused(
    settings: Json, source: Json, expected: str, tmp_path: Path
) -> None:
    text = misfit(tmp_path, settings, **source)
    assert re.search(expected, text)


@pytest.mark.spec("protocol.57")
@pytest.mark.parametrize(
    ("settings", "source"),
    [
        (DEDUP | {"primary_key": [["meta", "version"], ["blob", "anything"]]}, {}),
        (DEDUP | {"primary_key": [["anything"]]}, {"json_schema": {}}),
        (DEDUP | {"primary_key": [["b"], ["a"]]}, OWN_KEY),
        (INCREMENTAL, {"source_defined_cursor": True}),
        (INCREMENTAL | {"cursor_field": ["id"]}, OWN_CURSOR),
        ({"sync_mode": "full_refresh"}, {"supported_sync_modes": ["incremental"]}),
        ({}, {"supported_sync_modes": None, "json_schema": {"properties": []}}),
    ],
)  # fmt: skip
def test_settings_that_the_stream_supports_are_accepted(
    settings: Json, source: Json, tmp_path: Path
) -> None:
    configure(tmp_path, settings, **source)


@pytest.mark.spec("singer.19")
def test_a_tap_can_be_configured_for_log_based_replication(tmp_path: Path) -> None:
    settings = INCREMENTAL | LOG_BASED | {"primary_key": [["id"]]}
    stream = configure(
        tmp_path, settings, **make_tap_properties({"valid-replication-keys": ["id"]})
    )
    assert (stream.stream.source_defined_cursor, stream.cursor_field) == (True, None)
    [entry] = selection([stream])["streams"]
    assert entry["replication_method"] == "LOG_BASED"
    with pytest.raises(ConfigError, match="`replication_method` needs `sync_mode: incremental`"):
        load(tmp_path, declare(LOG_BASED))


ELSEWHERE = {"source_defined_cursor": True, "default_cursor_field": ["updated_at"]}


@pytest.mark.spec("protocol.69", "protocol.70", "protocol.73")
@pytest.mark.parametrize(
    ("settings", "source", "cursor", "key", "notes"),
    [
        (INCREMENTAL | {"cursor_field": ["id"]}, ELSEWHERE, ["updated_at"], None,
         ["cursor_field is ignored: the source defines its own cursor"]),
        (INCREMENTAL | {"cursor_field": ["nonsense"]}, {"source_defined_cursor": True}, None, None,
         ["cursor_field is ignored: the source defines its own cursor"]),
        ({"cursor_field": ["nonsense"]}, {}, None, None,
         ["cursor_field is ignored: a full refresh with `append` needs no cursor"]),
        ({"primary_key": [["nonsense"]]}, {}, None, None,
         ["primary_key is ignored: `append` needs no key"]),
        ({"primary_key": [["blob"]]}, {"source_defined_primary_key": [["id"]]}, None, [["id"]],
         ["primary_key is ignored: `append` needs no key"]),
        ({"primary_key": [["id"]]}, {}, None, [["id"]], []),
        (DEDUP | {"primary_key": [["id"]], "cursor_field": ["id"]}, {}, ["id"], [["id"]], []),
        (INCREMENTAL | {"cursor_field": ["id"]}, OWN_CURSOR, ["id"], None, []),
    ],
)  # fmt: skip
def test_unused_settings_are_ignored_with_a_note(
    settings: Json,
    source: Json,
    cursor: list[str] | None,
    key: list[list[str]] | None,
    notes: list[str],
    tmp_path: Path,
) -> None:
    stream = configure(tmp_path, settings, **source)
    assert (stream.cursor_field, stream.primary_key) == (cursor, key)
    connection = load(tmp_path, declare(settings))
    unused = describe_unused_settings(connection.streams[0], stream.stream)
    assert unused == [f"stream 'users': {note}" for note in notes]


def test_fields_whose_schema_is_elsewhere_are_named() -> None:
    well_known = {"$ref": "WellKnownTypes.json#/definitions/Date"}
    schema = {
        "$ref": "base.json",
        "properties": {"id": well_known, "home": {"$ref": "#/$defs/home"}},
    }
    lost = "stream 'users': the schema refers to 'base.json', which is not in it, so fields may be missing"
    notes = describe_broken_fields(AirbyteStream(name="users", json_schema=schema))
    assert lost in notes and len(notes) == 2
    assert (
        "'#/$defs/home', which is not in it, so the field 'home' is stored as JSON text" in notes[1]
    )


def test_a_stream_that_is_configured_twice_is_refused(tmp_path: Path) -> None:
    streams = [{"name": "users"}, {"name": "users", "namespace": "x"}]
    source = Catalog(streams=[*catalog().streams, *catalog(namespace="x").streams])
    assert len(resolve_streams(load(tmp_path, declare(streams=streams)), source)) == 2
    with pytest.raises(ConfigError, match=r"stream 'x\.users' is configured twice; remove one"):
        resolve_streams(load(tmp_path, declare(streams=[*streams, streams[1]])), source)


def test_the_errors_of_all_streams_are_reported_together(tmp_path: Path) -> None:
    streams = [{"name": "users"} | INCREMENTAL | DEDUP, {"name": "orders"}]
    with pytest.raises(ConfigError) as error:
        resolve_streams(load(tmp_path, declare(streams=streams)), catalog())
    for part in ("cursor_field: ", "primary_key: ", "stream 'orders' is not in the catalog"):
        assert part in error.value.message


@pytest.mark.parametrize(
    "text", ["{{ env.TOKEN | upper }}", "x-{{env(TOKEN)}}", "{{- env['TOKEN'] }}"]
)
def test_other_forms_of_a_template_of_a_variable_are_refused(text: str, tmp_path: Path) -> None:
    for config in ({"auth": {"token": text}}, {"auth": [text]}):
        source: Json = {"command": ["source-x"], "config": config}
        message = refusal(tmp_path, declare(source=source))
        assert "source.config: auth." in message and "{{ env.NAME }}" in message
    source = {"command": ["source-x"], "environment": {"TOKEN": text}}
    assert "source.environment: TOKEN: write" in refusal(tmp_path, declare(source=source))
    destination = {"command": ["d"], "config": {"token": text}}
    assert "destination.config: token: write" in refusal(tmp_path, declare(destination=destination))


def test_a_template_of_a_variable_is_kept_until_the_connector_starts(tmp_path: Path) -> None:
    config = {"token": "{{ env.NOT_SET }}", "url": ["https://{{ env('HOST', 'localhost') }}/x"]}
    source: Json = {"command": ["source-x"], "config": config, "environment": {"A": "{{ env.B }}"}}
    assert load(tmp_path, declare(source=source)).source.config == config
    source["config"] = {"token": "{{ env.ELT_HASH_SALT }}"}
    assert "config.token refers to the environment variable ELT_HASH_SALT" in refusal(
        tmp_path, declare(source=source)
    )
    source = {"command": ["source-x", "{{ env.TOKEN }}"]}
    assert "source.command.1: the template" in refusal(tmp_path, declare(source=source))


def test_other_templates_and_literals_are_passed_to_the_connector(tmp_path: Path) -> None:
    config = {"path": "{{ config['x'] }}", "note": {"literal": "{{ env.X }}"}}
    source = {"command": ["source-x"], "config": config}
    assert load(tmp_path, declare(source=source)).source.config == config


def test_deadlines_can_be_set_for_each_command(tmp_path: Path) -> None:
    assert load(tmp_path, declare()).deadlines.seconds() == {
        "spec": 900.0,
        "check": 900.0,
        "discover": 3600.0,
        "partitions": 3600.0,
    }
    deadlines = load(tmp_path, declare(deadlines={"discover": "6h"})).deadlines.seconds()
    assert (deadlines["check"], deadlines["discover"]) == (900.0, 21_600.0)
    assert "deadlines" in refusal(tmp_path, declare(deadlines={"read": "6h"}))


def test_a_stream_that_is_not_configured_has_default_settings() -> None:
    settings = {"name": "users", "on_undeclared": "keep"}
    attributes = {"name": "shop", "source": {"command": ["tap"]}, "streams": [settings]}
    connection = Connection.model_validate(attributes)
    assert connection.settings_of(StreamId("users", None)).on_undeclared == "keep"
    schema = {"type": "object", "properties": {"id": {"type": "integer"}}}
    catalog = Catalog(
        streams=[AirbyteStream(name=name, json_schema=schema) for name in ("users", "orders")]
    )
    streams = [catalog_stream(connection, catalog, name) for name in ("users", "orders")]
    assert [stream.settings.on_undeclared for stream in streams] == ["keep", "warn"]
