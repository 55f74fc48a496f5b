"""The checkpoint that a STATE belongs to."""

from __future__ import annotations

import pytest

from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import StreamId
from elt_assets.protocol.message_rules import stream_of
from elt_assets.protocol.messages import State

A, B = StreamId("a"), StreamId("b", "ns")
LEGACY = State.from_json('{"data": {"a": 1}}')
GLOBAL = State.from_json(
    '{"type": "GLOBAL", "global": {"shared_state": {"lsn": 1}, "stream_states": []}}'
)


def of(descriptor: str) -> State:
    return State.from_json(f'{{"type":"STREAM","stream":{{"stream_descriptor":{descriptor}}}}}')


@pytest.mark.spec("protocol.111")
def test_a_state_names_its_stream_by_name_and_namespace() -> None:
    assert stream_of(of('{"name": "b", "namespace": "ns"}'), [A, B]) == B
    assert stream_of(of('{"name": "b"}'), [A, B]) is None
    assert stream_of(of('{"name": "x"}'), [A, B]) is None


def test_a_legacy_state_belongs_to_a_stream_only_if_one_is_read() -> None:
    assert stream_of(LEGACY, [A]) == A
    with pytest.raises(ConfigError, match=r"LEGACY.*\n.*read_together"):
        stream_of(LEGACY, [A, B])


@pytest.mark.spec("protocol.113")
@pytest.mark.parametrize("streams", [[A], [A, B]])
def test_a_shared_state_is_refused_with_guidance(streams: list[StreamId]) -> None:
    with pytest.raises(ConfigError, match=r"GLOBAL.*\n.*read_together"):
        stream_of(GLOBAL, streams)
