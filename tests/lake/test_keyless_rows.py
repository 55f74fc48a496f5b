"""Rows without a key, from before the table had that key: they stay, whatever is merged beside them."""

from __future__ import annotations

from typing import Any

from elt_assets.lake.merge.partition_files import count_repeated_keys
from elt_assets.protocol.catalog import APPEND, APPEND_DEDUP, ConfiguredStream
from tests.lake.harness import Lake
from tests.lake.staging import INTEGER, STRING, rows, stream

FIELDS: dict[str, Any] = {"id": INTEGER, "at": INTEGER, "text": STRING}
WIDER = {**FIELDS, "region": STRING, "_ab_cdc_deleted_at": STRING}
Record = dict[str, Any]


def keyed(*key: str, fields: Record = FIELDS) -> ConfiguredStream:
    return stream(fields, APPEND_DEDUP, key=key, cursor=["at"])


def record(number: int | None, at: int, **more: Any) -> Record:
    return {"id": number, "at": at, "text": f"{number} at {at}", **more}


def model(present: list[Record], new: list[Record], key: list[str]) -> list[str]:
    """Return the result of a merge: rows without a key unchanged; of each key the latest."""
    kept: list[str] = []
    latest: dict[tuple[Any, ...], Record] = {}
    for each in [*present, *new]:
        values = tuple(each.get(name) for name in key)
        if set(values) == {None}:
            kept.append(each["text"])
        elif values not in latest or each["at"] >= latest[values]["at"]:
            latest[values] = each
    alive = [e["text"] for e in latest.values() if e.get("_ab_cdc_deleted_at") is None]
    return sorted([*kept, *alive])


def texts(lake: Lake) -> list[str]:
    return [text for (text,) in rows(lake.spark, lake.table, "text")]


def versions(lake: Lake) -> list[tuple[Any, ...]]:
    return lake.versions("text", "_is_current", "_valid_to")


def test_rows_with_null_keys_are_kept_when_a_key_is_added(lake: Lake, engine: str) -> None:
    old = [record(None, 1), record(None, 2), record(None, 2), record(1, 1), record(2, 1)]
    lake.sync(stream(FIELDS, APPEND), *old[:3])
    lake.sync(stream(FIELDS, APPEND), *old[3:])
    lake.history = True
    new = [record(1, 5), record(3, 1)]
    lake.sync(keyed("id"), *new)
    assert texts(lake) == model(old, new, ["id"])
    assert count_repeated_keys(lake.provider, lake.table, lake.table.files, [["id"]]) == 0
    assert [(text, current) for text, current, _ in versions(lake)] == [
        ("1 at 1", False),
        ("1 at 5", True),
        ("2 at 1", True),
        ("3 at 1", True),
    ]


def test_rows_that_lack_a_new_key_field_are_kept(lake: Lake, engine: str) -> None:
    """Deletes that the table remembers do not come back as rows."""
    lake.history = True
    old = [record(1, 1), record(2, 1), record(3, 1)]
    gone = record(3, 2, _ab_cdc_deleted_at="now")
    lake.sync(keyed("id", fields=WIDER), *old, gone)
    before = versions(lake)
    new = [record(1, 0, region="eu"), record(1, 3, region="eu"), record(4, 1, region="eu")]
    lake.sync(keyed("id", "region", fields=WIDER), *new)
    assert texts(lake) == model(old[:2], new, ["id", "region"])
    assert set(before) < set(versions(lake))
    assert (
        count_repeated_keys(lake.provider, lake.table, lake.table.files, [["id"], ["region"]]) == 0
    )


def test_repeated_keys_are_counted_in_files_that_lack_a_key_column(lake: Lake) -> None:
    lake.sync(stream(FIELDS, APPEND), record(1, 1), record(1, 2))
    lake.sync(stream(WIDER, APPEND), *(record(1, 3, region="eu") for _ in range(2)))
    table = lake.table
    assert count_repeated_keys(lake.provider, table, table.files, [["id"], ["region"]]) == 2
    assert count_repeated_keys(lake.provider, table, table.files, [["id"]]) == 1
    found = [
        count_repeated_keys(lake.provider, table, [file], [["region"]]) for file in table.files
    ]
    assert sorted(found) == [0, 1]
