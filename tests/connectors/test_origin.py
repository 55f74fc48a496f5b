"""A source that was restored from an older backup, or replaced, is not read from its former state."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.sdk import Checkpoint, Stream, Window
from connectors.sdk.items import Context, Record, Warn
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import FULL_REFRESH, INCREMENTAL, ConfiguredStream

Json = dict[str, Any]


class Log(Stream):
    """The log of a database that has `end` entries."""

    name = "log"
    replication_key = "lsn"
    json_schema = {"properties": {"lsn": {"type": "integer"}, "part": {}}}  # noqa: RUF012

    def __init__(
        self, end: int, source: str | None = "1", *, knows_end: bool = True, parts: int = 0
    ):
        self.end, self.source, self.knows_end, self.parts = end, source, knows_end, parts

    def source_identity(self) -> str | None:
        return self.source

    def log_position(self) -> Any:
        return self.end if self.knows_end else None

    def partitions(self) -> Iterable[Context] | None:
        return [{"part": number} for number in range(self.parts)] or None

    def records(self, window: Window) -> Iterable[Record]:
        for number in range(window.start or 0, self.end + 1):
            yield {"lsn": number, **window.partition}


def read(
    stream: Stream, state: Json | None, mode: str = INCREMENTAL
) -> tuple[int, Json, list[str]]:
    """Return the number of records, the last state, and the warnings."""
    described = json.loads(stream.describe().to_json())
    written = {"stream": described, "sync_mode": mode, "destination_sync_mode": "append"}
    items = list(stream.read(ConfiguredStream.from_json(json.dumps(written).encode()), state))
    states = [json.loads(bytes(i.state)) for i in items if isinstance(i, Checkpoint)]  # type: ignore[arg-type]
    rows = [i for i in items if isinstance(i, dict)]
    return len(rows), (states or [{}])[-1], [i.text for i in items if isinstance(i, Warn)]


@pytest.mark.parametrize("parts", [0, 2])
def test_a_source_that_is_older_than_its_state_is_an_error(parts: int) -> None:
    _, state, _ = read(Log(9, parts=parts), None)
    with pytest.raises(ConfigError, match="older than its state") as caught:
        read(Log(8, parts=parts), state)
    assert "elt state reset" in (caught.value.guidance or "")


@pytest.mark.parametrize("parts", [0, 2])
def test_another_source_is_an_error(parts: int) -> None:
    _, state, _ = read(Log(9, "one", parts=parts), None)
    assert state["source_identity"] == "one"
    with pytest.raises(ConfigError, match="is of the source 'one', and this source is 'other'"):
        read(Log(20, "other", parts=parts), state)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=5),
    st.integers(0, 2),
    st.sampled_from([None, "1"]),
)
def test_a_log_that_only_grows_raises_no_alarm(
    steps: list[tuple[int, bool]], parts: int, source: str | None
) -> None:
    """Nothing may be new, a state may have no identity yet, and a state may be reset."""
    end, state = 0, None
    for growth, is_reset in steps:
        end += growth
        _, state, warned = read(Log(end, source, parts=parts), None if is_reset else state)
        assert not warned
        assert state.get("source_identity") == source
        source = "1"


def test_a_stream_that_does_not_know_its_end_and_a_full_refresh_are_not_checked() -> None:
    _, state, _ = read(Log(9, None), None)
    assert read(Log(3, None, knows_end=False), state)[0] == 0
    assert read(Log(3, "other"), state, FULL_REFRESH)[0] == 4
