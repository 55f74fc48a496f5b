"""Any messages in any order, as long as the sync completes: every state comes out, as it came, in order."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elt_assets.lake.session import SparkProvider
from tests.destination.running import (
    Destination,
    Json,
    legacy,
    make_shared_state,
    record,
    state,
    stream,
)

NAMES = ["one", "two"]
MODES = ["append", "append_dedup", "overwrite"]

names = st.sampled_from(NAMES)
ids = st.integers(0, 3) | st.none()
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)
record_of = st.builds(lambda name, number: record({"id": number}, name), names, ids)
more = st.dictionaries(st.sampled_from(["id", "x"]), values, max_size=2)
own = st.builds(lambda value, name, extra: state(value, name, **extra), values, names, more)
whole = st.builds(lambda value, extra: make_shared_state(value, *NAMES, **extra), values, more)
bare = st.builds(lambda value, extra: legacy(value, **extra), values, more)


def messages() -> st.SearchStrategy[list[Json]]:
    """The messages of a source, which has states of one kind."""
    kinds = [st.lists(record_of | kind, max_size=12) for kind in (own, whole, bare, own | whole)]
    return st.one_of(kinds)


def states_of(sent_states: list[Json], about: str | None) -> list[Any]:
    """The states of one stream, or those that all share, without the counts."""
    own_states = []
    for message in copy.deepcopy(sent_states):
        body = message["state"]
        body.pop("destinationStats", None)
        if body.get("stream", {}).get("stream_descriptor", {}).get("name") == about:
            own_states.append(message)
    return own_states


@pytest.mark.spec("protocol.32", "airbyte.20")
@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(sent=messages(), modes=st.tuples(*[st.sampled_from(MODES)] * 2), rows=st.integers(1, 6))
def test_all_states_are_returned_unchanged_and_in_order(
    spark_provider: SparkProvider,
    monkeypatch: pytest.MonkeyPatch,
    sent: list[Json],
    modes: tuple[str, str],
    rows: int,
) -> None:
    with TemporaryDirectory() as folder:
        monkeypatch.setenv("DAGSTER_HOME", f"{folder}/home")
        destination = Destination(Path(folder), spark_provider, {"checkpoint": {"rows": rows}})
        streams = [stream(name, mode) for name, mode in zip(NAMES, modes, strict=True)]

        answer = destination.write(streams, sent)

        sent_states = [
            json.loads(json.dumps(message)) for message in sent if message["type"] == "STATE"
        ]
        for about in (*NAMES, None):
            assert states_of(answer.states, about) == states_of(sent_states, about)
        for message in answer.states:
            stats = message["state"]["destinationStats"]
            assert stats["recordCount"] >= 0 and stats.get("rejectedRecordCount", 1) > 0
        if not {"STREAM", "GLOBAL"} <= {message["state"].get("type") for message in sent_states}:
            # No source may send both. The counts of rejected records do not distinguish them.
            _check_counts(answer.counts, answer.states, sent, dict(zip(NAMES, modes, strict=True)))


def _check_counts(
    counts: list[tuple[float, float]], states: list[Json], sent: list[Json], modes: dict[str, str]
) -> None:
    """The rows committed and rejected for all states of a kind are those before the last of them."""
    for kind in (*NAMES, None):
        last, seen = (0, 0), (0, 0)
        for message in sent:
            if message["type"] == "RECORD":
                name = message["record"]["stream"]
                if kind in (None, name):
                    bad = message["record"]["data"]["id"] is None and modes[name] == "append_dedup"
                    seen = (seen[0] + (not bad), seen[1] + bad)
            elif kind == message["state"].get("stream", {}).get("stream_descriptor", {}).get(
                "name"
            ):
                last = seen
        of_kind = [
            count
            for count, message in zip(counts, states, strict=True)
            if kind == message["state"].get("stream", {}).get("stream_descriptor", {}).get("name")
        ]
        assert (sum(c for c, _ in of_kind), sum(r for _, r in of_kind)) == last
