"""Catalogs: names, modes, and the rules by which cursor and key are found."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elt_assets.protocol.catalog import (
    AirbyteStream,
    Catalog,
    ConfiguredStream,
    StreamDescriptor,
    StreamId,
    stream_names,
)

PATHS: st.SearchStrategy[list[str] | None] = (
    st.none() | st.just([]) | st.lists(st.text(max_size=3), min_size=1, max_size=2)
)


def make_configured(stream: dict[str, Any] | None = None, **settings: Any) -> ConfiguredStream:
    source = AirbyteStream(name="users", json_schema={}, **(stream or {}))
    return ConfiguredStream(stream=source, **settings)


@pytest.mark.spec(
    "protocol.59",
    "protocol.60",
    "protocol.71",
    "protocol.88",
    "protocol.89",
    "protocol.90",
    "protocol.91",
)
@given(st.sampled_from([None, False, True]), PATHS, PATHS, st.booleans())
def test_the_cursor_is_resolved_by_the_rules_of_the_protocol(
    own: bool | None,
    configured_field: list[str] | None,
    default: list[str] | None,
    incremental: bool,
) -> None:
    stream = make_configured(
        {"source_defined_cursor": own, "default_cursor_field": default},
        cursor_field=configured_field,
        sync_mode="incremental" if incremental else "full_refresh",
    )
    expected = (default or []) if own else (configured_field or default or [])
    assert stream.cursor == expected
    assert stream.lacks_cursor == (incremental and not own and not expected)


@pytest.mark.spec("protocol.61")
@pytest.mark.parametrize(
    ("own", "configured_key", "key"),
    [
        ([["id"]], [["name"]], [["id"]]),
        (None, [["name"], ["a", "b"]], [["name"], ["a", "b"]]),
        ([], [["name"]], [["name"]]),
        (None, None, []),
    ],
)
def test_a_source_defined_key_takes_precedence(own: Any, configured_key: Any, key: Any) -> None:
    assert (
        make_configured({"source_defined_primary_key": own}, primary_key=configured_key).key == key
    )


@pytest.mark.parametrize(
    ("mode", "deduplicates", "overwrites"),
    [
        ("append", False, False),
        ("overwrite", False, True),
        ("append_dedup", True, False),
        ("overwrite_dedup", True, True),
    ],
)
def test_each_destination_mode_has_its_properties(
    mode: str, deduplicates: bool, overwrites: bool
) -> None:
    stream = make_configured(destination_sync_mode=mode)
    assert (stream.deduplicates, stream.overwrites) == (deduplicates, overwrites)


@pytest.mark.spec("protocol.58")
@pytest.mark.parametrize("modes", [None, [], ["incremental"], ["incremental", "full_refresh"]])
def test_full_refresh_is_always_possible(modes: list[str] | None) -> None:
    stream = AirbyteStream(name="", json_schema={}, supported_sync_modes=modes)
    assert sorted(stream.sync_modes) == sorted({*(modes or []), "full_refresh"})


@pytest.mark.spec("protocol.122")
def test_streams_are_distinguished_by_name_and_namespace() -> None:
    names: list[tuple[str, str | None]] = [
        ("", None),
        ("", ""),
        ("a", None),
        ("a", "b"),
        ("a.b", None),
        ("b", "a"),
    ]
    streams = [AirbyteStream(name=n, namespace=s, json_schema={}) for n, s in names]
    catalog = Catalog(streams=streams)
    assert [catalog.find(StreamId(*name)) for name in names] == streams
    assert catalog.find(StreamId("A")) is None
    assert catalog.find(StreamDescriptor(name="a", namespace="b").id) is streams[3]


def test_an_id_is_shown_as_namespace_and_name() -> None:
    ids = [StreamId("a"), StreamId("a", "b"), StreamId(""), StreamId("a", "")]
    assert [str(stream) for stream in ids] == ["a", "b.a", "", ".a"]


PARTS = st.text('ab."', max_size=4)
STREAMS = st.sets(st.builds(StreamId, PARTS, st.none() | PARTS), min_size=1, max_size=6)


@given(STREAMS)
def test_shown_stream_names_are_unique(streams: set[StreamId]) -> None:
    names = stream_names(streams)
    assert set(names) == streams and len(set(names.values())) == len(streams)


def test_a_name_is_quoted_only_if_it_is_ambiguous() -> None:
    streams = [StreamId("d.e"), StreamId("c", "a.b"), StreamId("b.c", "a"), StreamId('x"y')]
    assert list(stream_names(streams).values()) == ["d.e", '"a.b".c', 'a."b.c"', '"x""y"']


@pytest.mark.spec("airbyte.15")
def test_generations_and_unknown_properties_of_a_catalog_are_kept() -> None:
    line = (
        b'{"new":1.0,"generation_id":3,"minimum_generation_id":0,"sync_id":9,"sync_mode":"update",'
        b'"destination_sync_mode":"soft_delete","stream":{"name":"a","json_schema":{"x":1.0}}}'
    )
    stream = ConfiguredStream.from_json(line)
    assert (stream.generation_id, stream.minimum_generation_id, stream.sync_id) == (3, 0, 9)
    assert msgspec.json.decode(stream.to_json()) == msgspec.json.decode(line)


@pytest.mark.parametrize("text", ["{}", '{"streams":null}', '{"streams":[{"name":"a"}]}', "[]"])
def test_an_incomplete_catalog_is_refused(text: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        Catalog.from_json(text)
