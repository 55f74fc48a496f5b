"""Records that cannot be stored are counted, kept as they came, and moved once the table can take them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from elt_assets.lake.admin.replay import replay
from elt_assets.lake.write.sync_columns import WriteSpec
from elt_assets.protocol.catalog import (
    APPEND,
    APPEND_DEDUP,
    DELETED_AT,
    OVERWRITE_DEDUP,
    ConfiguredStream,
)
from tests.lake.crashing import EVENTS, event, read, sync
from tests.lake.harness import Lake
from tests.lake.staging import EMITTED_AT, INTEGER, STRING, checkpoint, stage, stream

pytestmark = pytest.mark.usefixtures("agreeing_readers")


def replayed(
    lake: Lake, wanted: ConfiguredStream, *, on_schema_change: str = "evolve", run: str = "run-2"
) -> tuple[int, int] | None:
    """Replay as `elt replay` does; the number of records that were moved, and of those that stay."""
    tables = lake.tables()
    tables.roll_back_companions(run)
    wanted.sync_id = tables.metadata.sync_id + 1
    spec = WriteSpec(wanted, run, lake.history, on_schema_change)  # type: ignore[arg-type]
    done = replay(lake.provider, tables, spec, lake.scratch)
    return None if done is None else (done.records, done.rejected)


def keyed(*key: str) -> ConfiguredStream:
    return stream(EVENTS, APPEND_DEDUP, key=key, cursor=["at"])


_MICROSECONDS = pa.timestamp("us", "UTC")
RAW = [
    b'{ "id" : null,"text":"\\u00fc 1.50" , "more": {"_elt:meta": 1e2} }',
    b"[1, 2]",
    b'"text"',
    b"{}",
]


def test_rejected_records_are_counted_and_kept_unchanged(lake: Lake) -> None:
    done = lake.sync(keyed("id"), *RAW, event(1, 1))
    assert (done.records, done.rejected) == (1, 4)
    assert lake.dead_letter.records == 4
    null, odd = "every field of the primary key is null", "not a readable JSON object"
    at = EMITTED_AT
    assert read(lake, "_dead_letter", "place", "record", "reason", "unix_millis(extracted_at)") == [
        (0, RAW[0].decode(), null, at),
        (1, RAW[1].decode(), odd, None),
        (2, RAW[2].decode(), odd, None),
        (3, RAW[3].decode(), null, at),
    ]
    assert read(lake, "_dead_letter", "stream", "run_id", "meta") == [("users", "run-1", None)] * 4


def test_the_metadata_of_a_rejected_record_is_kept(lake: Lake) -> None:
    own = {"field": "x", "change": "NULLED", "reason": "SOURCE_RETRIEVAL_ERROR"}
    data = [event(None, 7, "full"), b"{ }"]
    writer = lake.writer(keyed("id"))
    writer.write(stage(lake.folder / "staging", data, meta={"changes": [own]}))
    writer.commit(checkpoint(final=True))
    meta = json.dumps({"changes": [own]})
    wanted = [("{ }", meta), (json.dumps(data[0]), meta)]
    assert read(lake, "_dead_letter", "record", "meta") == wanted
    assert replayed(lake, stream(EVENTS, APPEND)) == (2, 0)
    found = read(
        lake, "", "at", "to_json(_airbyte_meta.changes)", "unix_millis(_airbyte_extracted_at)"
    )
    assert [(at, json.loads(metadata), when) for at, metadata, when in found] == [
        (7, [own], EMITTED_AT),
        (None, [own], EMITTED_AT),
    ]


def test_a_replay_moves_records_that_now_fit_and_keeps_the_others(lake: Lake) -> None:
    lake.history = True
    sync(lake, [[event(1, 10), event(None, 1), b"[5]"], [event(None, 2)]], keyed("id"))
    before = lake.tables().metadata
    assert replayed(lake, keyed("text")) == (2, 1)
    wanted = [("1 at 10",), ("None at 1",), ("None at 2",)]
    assert read(lake, "", "text") == read(lake, "_history", "text") == wanted
    assert read(lake, "_dead_letter", "reason", "run_id") == [
        ("not a readable JSON object", "run-2")
    ]
    head = lake.tables().metadata
    assert (head.state, head.generation) == (before.state, before.generation)
    assert head.sequence == before.sequence + 1
    ids = [each for (each,) in read(lake, "", "_airbyte_raw_id")]
    assert len(set(ids)) == 3
    assert replayed(lake, keyed("text")) == (0, 1)
    assert read(lake, "", "text") == wanted


def test_records_with_the_former_case_of_a_field_are_replayed(lake: Lake) -> None:
    lake.sync(keyed("id"), {"id": 1, "AT": None, "Text": "a"}, {"ID": "x", "AT": 2, "Text": "b"})
    assert read(lake, "", "id", "text") == [(1, "a")]
    assert lake.dead_letter.records == 1
    renamed = {"ID": STRING, "at": INTEGER, "TEXT": STRING}
    assert replayed(lake, stream(renamed, APPEND_DEDUP, key=["ID"], cursor=["at"])) == (1, 0)
    assert read(lake, "", "id", "at", "text") == [("1", None, "a"), ("x", 2, "b")]


def test_a_record_that_stays_rejected_gets_the_new_reason(lake: Lake) -> None:
    lake.sync(keyed("id"), {"id": None, "at": "late", "text": "x"}, event(1, 1))
    [(reason,)] = read(lake, "_dead_letter", "reason")
    frozen = stream({**EVENTS, "at": STRING}, APPEND)  # which a column of integers cannot take
    assert replayed(lake, frozen, on_schema_change="freeze") == (0, 1)
    [(other, run)] = read(lake, "_dead_letter", "reason", "run_id")
    assert (other != reason, "at" in other, run) == (True, True, "run-2")


def test_a_replayed_record_stands_where_it_arrived(lake: Lake) -> None:
    """The times of extraction are equal; the order of arrival decides, within a sync and between syncs."""
    syncs = [
        [event(1, 7, "a"), event(None, 7, "rejected"), event(2, 7, "b")],
        [event(3, 9, "a"), event(None, 9, "rejected"), event(None, 8, "rejected")],
        [event(4, 8, "b")],
    ]
    for number, events in enumerate(syncs, 1):
        configured = stream(EVENTS, APPEND_DEDUP, key=["id"])
        configured.sync_id = number
        lake.sync(configured, *events)
    done = replayed(lake, stream(EVENTS, APPEND_DEDUP, key=["at"]))
    assert done == (3, 0)
    assert read(lake, "", "at", "text") == [(7, "b"), (8, "b"), (9, "rejected")]


def test_a_replay_gives_the_rows_as_if_no_record_had_been_rejected(lake: Lake) -> None:
    """Equal times and cursors, with deletes, in three syncs; some records do not fit a frozen column."""
    random = Random(7)
    events = [
        {
            **event(random.randrange(12), random.randrange(3), f"{number:03}"),
            DELETED_AT: "now" if random.random() < 0.2 else None,
            "value": random.choice([1, "one"]),
        }
        for number in range(120)
    ]
    whole, parts = (
        replace(lake, folder=lake.folder / name, history=True) for name in ("whole", "parts")
    )
    for number in range(3):
        configured = frozen(INTEGER if number == 0 else STRING)
        configured.sync_id = number + 1
        some = events[number::3]
        whole.sync(configured, *({**e, "value": 1} for e in some), on_schema_change="freeze")
        if number == 0:
            some = [{**e, "value": 1} for e in some]
        parts.sync(configured, *some, on_schema_change="freeze")
    assert parts.dead_letter.records > 20
    done = replayed(parts, frozen(STRING))
    assert done is not None and done[1] == 0
    assert read(parts, "", "text") == read(whole, "", "text")
    versions = ("text", "_valid_from", "_valid_to", "_is_current")
    assert read(parts, "_history", *versions) == read(whole, "_history", *versions)


def frozen(kind: Any, policy: str = APPEND_DEDUP, cursor: Sequence[str] = ("at",)) -> Any:
    fields = {**EVENTS, "value": kind, DELETED_AT: STRING}
    return stream(fields, policy, key=["id"], cursor=cursor)


def fit(id_: int, at: int, text: str, value: Any = 1) -> dict[str, Any]:
    return {"id": id_, "at": at, "text": text, "value": value}


def misfit(id_: int, at: int) -> dict[str, Any]:
    """A record that is rejected because of its value, and fits when it is replayed."""
    return fit(id_, at, "misfit", "one")


def gone(id_: int) -> dict[str, Any]:
    """A delete without a cursor value."""
    return {"id": id_, "at": None, "text": None, DELETED_AT: "now"}


LATER: dict[str, tuple[str, Sequence[str], Sequence[Sequence[Any]]]] = {
    "confirmed by an equal cursor, deleted again": (
        APPEND_DEDUP,
        ["at"],
        [[fit(1, 5, "a"), gone(2)], [misfit(1, 5), misfit(2, 9)], [fit(1, 5, "a"), gone(2)]],
    ),
    "confirmed without a cursor": (
        APPEND_DEDUP,
        [],
        [[fit(1, 5, "a")], [misfit(1, 9)], [fit(1, 5, "a")]],
    ),
    "confirmed after a delete, deleted and removed by a refresh": (
        OVERWRITE_DEDUP,
        ["at"],
        [
            [fit(1, 5, "a"), fit(2, 5, "a"), fit(3, 5, "a"), misfit(3, 9)],
            [misfit(1, 9), gone(1), fit(1, 5, "a"), misfit(2, 9), gone(2)],
        ],
    ),
}
"""Syncs in which a rejected record of a key is followed by a row or a delete of it, or by its absence."""


@pytest.mark.parametrize("case", LATER)
def test_a_replay_changes_nothing_that_was_confirmed_or_removed_later(
    lake: Lake, case: str
) -> None:
    policy, cursor, syncs = LATER[case]
    lake.history = True
    for number, events in enumerate([[fit(9, 1, "first")], *syncs], 1):
        configured = frozen(INTEGER if number == 1 else STRING, policy, cursor)
        configured.sync_id = number
        if policy == OVERWRITE_DEDUP:
            configured.generation_id = configured.minimum_generation_id = number
        lake.sync(configured, *events, on_schema_change="freeze")
    before = read(lake, "", "id", "at", "text")
    assert "misfit" not in {text for _, _, text in before}
    rejected = lake.dead_letter.records
    wanted = frozen(STRING, cursor=cursor)
    wanted.generation_id = number
    done = replayed(lake, wanted)
    assert done is not None and done[0] == rejected > 0
    assert read(lake, "", "id", "at", "text") == before
    versions = read(lake, "_history", "id", "at", "text", "_is_current")
    assert [version[:3] for version in versions if version[3]] == before


def test_an_older_record_does_not_replace_a_newer_row(lake: Lake) -> None:
    sync(lake, [[event(1, 10, "new"), event(None, 5, "new")]], keyed("id"))
    replayed(lake, keyed("text"))
    assert read(lake, "", "at", "text") == [(10, "new")]


def test_a_replay_without_rejected_records_changes_nothing(lake: Lake) -> None:
    lake.sync(keyed("id"), event(1, 1))
    before = lake.table.version
    assert replayed(lake, keyed("id")) is None
    lake.sync(keyed("id"), event(None, 1))
    replayed(lake, keyed("text"))
    assert replayed(lake, keyed("text")) is None
    assert lake.table.version == before + 2
