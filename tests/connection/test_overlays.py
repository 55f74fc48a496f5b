"""`defs.<ENV>.yaml`: what differs in an environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from elt_assets.connection import COMPONENT, Connection, check_overlays, find_place, load_connection
from elt_assets.connection.overlays import apply_overlay
from elt_assets.errors import ConfigError

BASE: dict[str, Any] = {
    "name": "shop",
    "source": {
        "package": "airbyte-source-faker==7.2.1",
        "config": {"count": 10, "login": {"env": "LOGIN"}, "options": {"a": 1, "b": [1, 2]}},
    },
    "streams": [{"name": "users", "tags": {"a": "1"}}, {"name": "users", "namespace": "eu"}],
    "schedule": "@hourly",
}


@pytest.fixture
def defs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ELT_DEFS", str(tmp_path))
    (tmp_path / "shop").mkdir()
    write(tmp_path / "shop" / "defs.yaml", BASE)
    return tmp_path / "shop"


def write(path: Path, *attributes: Any) -> None:
    documents = [{"type": COMPONENT, "attributes": content} for content in attributes]
    path.write_text(yaml.safe_dump_all(documents))


def load(monkeypatch: pytest.MonkeyPatch, environment: str) -> Connection:
    monkeypatch.setenv("ELT_ENV", environment)
    return load_connection(find_place("shop"))


def test_mappings_are_merged_by_key_and_streams_by_name(
    defs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"count": 5, "login": {"literal": "me"}, "options": {"b": [3]}}
    keyed = {"destination_sync_mode": "append_dedup"}
    streams = [
        {"name": "users", "tags": {"b": "2"}},
        {"name": "users", "namespace": "eu", "history": True, **keyed},
        {"name": "orders"},
    ]
    prod = {
        "source": {"connector": "faker", "config": config},
        "streams": streams,
        "schedule": None,
    }
    write(defs / "defs.prod.yaml", prod)
    connection = load(monkeypatch, "prod")
    assert (connection.source.kind, connection.schedule) == ("connector", None)
    expected = {"count": 5, "login": {"literal": "me"}, "options": {"a": 1, "b": [3]}}
    assert connection.source.config == expected
    assert [(s.name, s.namespace, s.history) for s in connection.streams] == [
        ("users", None, False),
        ("users", "eu", True),
        ("orders", None, False),
    ]
    assert connection.streams[0].tags == {"a": "1", "b": "2"}
    for other in ("dev", "", "../prod"):
        unchanged = load(monkeypatch, other)
        assert (unchanged.source.kind, unchanged.schedule) == ("package", "@hourly")


def test_only_values_of_a_connector_are_references(
    defs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lone field `file` of a whole config, and a field of a stream with the name `env`, are none."""
    source = {"connector": "faker", "config": {"file": "a.csv"}}
    streams = [{"name": "users", "rename": {"env": "zone"}}]
    write(defs / "defs.yaml", {**BASE, "source": source, "streams": streams})
    config = {"key": {"file": "/k"}}
    streams = [{"name": "users", "rename": {"id": "user_id"}}]
    write(defs / "defs.prod.yaml", {"source": {"config": config}, "streams": streams})
    connection = load(monkeypatch, "prod")
    assert connection.source.config == {"file": "a.csv", **config}
    assert connection.streams[0].rename == {"env": "zone", "id": "user_id"}


def test_an_error_in_an_overlay_names_it(defs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(defs / "defs.prod.yaml", {"schedul": "@daily"})
    with pytest.raises(
        ConfigError, match=r"defs\.yaml with defs\.prod\.yaml is not valid"
    ) as error:
        load(monkeypatch, "prod")
    assert "did you mean 'schedule'?" in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "is not valid YAML"),
        ("attributes: 5", "is not an overlay of a connection"),
        ("post_processing: {}\nattributes: {}", "is not an overlay of a connection"),
        ("attributes: {streams: [{history: true}]}", "a stream without a name"),
    ],
)
def test_a_file_that_is_no_overlay_is_refused(
    defs: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    (defs / "defs.prod.yaml").write_text(text)
    with pytest.raises(ConfigError, match=rf"defs\.prod\.yaml:? {message}"):
        load(monkeypatch, "prod")


def test_an_overlay_belongs_to_a_connection(defs: Path) -> None:
    write(defs / "defs.prod.yaml", {"name": "shop", "schedule": "@daily"})
    check_overlays(defs.parent)
    write(defs / "defs.prod.yaml", {"name": "shopp"})
    with pytest.raises(
        ConfigError, match=r"is for the connection 'shopp', which .* does not define"
    ):
        check_overlays(defs.parent)
    write(defs / "defs.yaml", BASE, {**BASE, "name": "second"})
    write(defs / "defs.prod.yaml", {"schedule": "@daily"})
    with pytest.raises(ConfigError, match=r"`attributes\.name` is missing, and .* 2 connections"):
        check_overlays(defs.parent)
    (defs / "defs.yaml").unlink()
    with pytest.raises(ConfigError, match="overlay of a connection that does not exist"):
        check_overlays(defs.parent)


def test_an_overlay_of_two_connections_changes_each(
    defs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(defs / "defs.yaml", BASE, {**BASE, "name": "second"})
    write(
        defs / "defs.prod.yaml",
        {"name": "second", "schedule": "@daily"},
        {"name": "shop", "schedule": "@weekly"},
    )
    assert load(monkeypatch, "prod").schedule == "@weekly"
    assert load_connection(find_place("second")).schedule == "@daily"


values = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=10,
)
settings = st.dictionaries(st.sampled_from("abc"), values)


@given(settings, settings)
def test_each_value_is_that_of_the_overlay_or_else_of_the_base(
    tmp_path_factory: pytest.TempPathFactory, base: dict[str, Any], overlay: dict[str, Any]
) -> None:
    folder = tmp_path_factory.mktemp("shop")
    write(folder / "defs.prod.yaml", overlay)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ELT_ENV", "prod")
        merged = apply_overlay(base, folder / "defs.yaml")

    def check(value: Any, before: Any, over: Any) -> None:
        if isinstance(before, dict) and isinstance(over, dict):
            assert set(value) == set(before) | set(over)
            for key in value:
                if key in over:
                    check(value[key], before.get(key), over[key])
                else:
                    assert value[key] == before[key]
        else:
            assert value == over

    check(merged, base, overlay)
