"""Composite keys with nulls: a null is a value of a part, but a key is not null in all its parts."""

from __future__ import annotations

from typing import Any

import pytest

from elt_assets.lake.merge.partition_files import count_repeated_keys
from elt_assets.protocol.catalog import APPEND_DEDUP, DELETED_AT
from tests.lake.harness import Lake
from tests.lake.staging import INTEGER, STRING, TIMESTAMP, checkpoint, rows, stage, stream

FIELDS = {"id": INTEGER, "part": STRING, "text": STRING, "at": INTEGER, DELETED_AT: TIMESTAMP}
KEYED = stream(FIELDS, APPEND_DEDUP, key=["id", "part"], cursor=["at"])
GONE = {DELETED_AT: "2026-01-01T00:00:00Z"}


def record(number: int | None, part: Any, text: str, at: int, **more: Any) -> dict[str, Any]:
    return {"id": number, "part": part, "text": text, "at": at, **more}


def test_a_null_in_a_part_of_a_key_is_a_value(lake: Lake, engine: str) -> None:
    lake.history = True
    first = [
        record(1, None, "a", 1),
        record(1, "", "b", 1),
        record(1, "x", "c", 1),
        record(None, "x", "d", 1),
        {"part": "y", "text": "e", "at": 1},
        record(2, None, "f", 1),
    ]
    assert lake.sync(KEYED, *first, record(None, None, "none", 1)).rejected == 1
    assert texts(lake) == ["a", "b", "c", "d", "e", "f"]
    assert rows(lake.spark, lake.dead_letter, "reason") == [
        ("every field of the primary key is null",)
    ]
    second = [
        record(1, None, "a2", 2),
        record(1, None, "late", 0),
        record(None, "x", "d2", 2),
        record(2, None, "gone", 2, **GONE),
        {"part": "y", **GONE},
    ]
    assert lake.sync(KEYED, *second).rejected == 0
    assert texts(lake) == ["a2", "b", "c", "d2"]
    lake.sync(KEYED, record(2, None, "older", 1), record(None, "y", "again", 1))
    assert texts(lake) == ["a2", "again", "b", "c", "d2"]
    current = [text for text, is_current in lake.versions("text", "_is_current") if is_current]
    assert current == texts(lake)
    key = [["id"], ["part"]]
    assert count_repeated_keys(lake.provider, lake.table, lake.table.files, key) == 0


FITS, TOO_LATE = "2026-01-01T00:00:00Z", "9999-12-31T23:59:59-12:00"
BY_TIME = stream({**FIELDS, "at": TIMESTAMP}, APPEND_DEDUP, key=["id", "part"], cursor=["at"])


def test_a_cursor_that_did_not_fit_orders_no_row(lake: Lake, engine: str) -> None:
    """It would be the least: the older row of the key would stay, without a trace."""
    lake.history = True
    lake.sync(BY_TIME, {**record(1, "x", "old", 0), "at": FITS})
    for misfit in (TOO_LATE, "soon", 7.5):
        newer = {**record(1, "x", "new", 0), "at": misfit}
        assert lake.sync(BY_TIME, newer, {**newer, "id": 2, "at": None}).rejected == 1
    assert texts(lake) == ["new", "old"]
    (reason,) = {*rows(lake.spark, lake.dead_letter, "reason")}
    assert reason == (
        "field 'at' is null in place of a value that did not fit: rows are ordered by it",
    )


@pytest.mark.parametrize(("field", "use"), [("part", "matched"), ("at", "ordered")])
def test_a_null_that_the_source_made_of_a_value_is_none(lake: Lake, field: str, use: str) -> None:
    entry = {"field": field, "change": "NULLED", "reason": "SOURCE_SERIALIZATION_ERROR"}
    writer = lake.writer(KEYED)
    data: list[Any] = [{**record(1, "x", "a", 1), field: None}]
    writer.write(stage(lake.folder / "staging", data, meta={"changes": [entry]}))
    data = [{**record(1, "x", "b", 1), field: None}]
    more = {**entry, "field": "text"}
    writer.write(stage(lake.folder / "staging", data, meta={"changes": [more]}, first=1))
    writer.commit(checkpoint(final=True))
    assert texts(lake) == ["b"]
    assert f"rows are {use} by it" in rows(lake.spark, lake.dead_letter, "reason")[0][0]


def texts(lake: Lake) -> list[str]:
    return [text for (text,) in rows(lake.spark, lake.table, "text")]
