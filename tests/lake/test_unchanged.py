"""Rows that come again with the values that their table has: they rewrite nothing, and change no outcome."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from elt_assets.lake.admin.replay import replay
from elt_assets.lake.merge import file_splitting, unchanged
from elt_assets.lake.session import SparkProvider
from elt_assets.lake.write.sync_columns import WriteSpec
from elt_assets.protocol.catalog import APPEND_DEDUP, DELETED_AT, ConfiguredStream
from elt_assets.sync.events import Committed
from tests.lake.harness import Lake
from tests.lake.plain import NoSpark, rows_of, without_spark
from tests.lake.staging import INTEGER, NUMBER, STRING, array, stream

pytestmark = pytest.mark.spark
SMALL = (file_splitting, "MAX_ROWS_UNSPLIT", 0)
"""Lets each merge split the files of its table."""
Record = tuple[int, int, str, bool, bool]
RECORDS: st.SearchStrategy[list[Record]] = st.lists(
    st.tuples(
        st.integers(1, 4),
        st.integers(1, 2),
        st.sampled_from("ab"),
        *[st.sampled_from([0, 0, 0, 1])] * 2,
    ).map(lambda record: (*record[:3], bool(record[3]), bool(record[4]))),
    max_size=5,
)


def frozen(kind: Any, cursor: Sequence[str] = ("at",)) -> ConfiguredStream:
    """A stream whose column `value` has a type that not every record fits: some are rejected."""
    fields = {"id": INTEGER, "at": INTEGER, "text": STRING, "value": kind, DELETED_AT: STRING}
    return stream(fields, APPEND_DEDUP, key=["id"], cursor=cursor)


def event(id_: int, at: int, text: str, is_gone: bool, is_misfit: bool) -> dict[str, Any]:
    value = "one" if is_misfit else 1
    return {
        "id": id_,
        "at": at,
        "text": text,
        "value": value,
        DELETED_AT: "now" if is_gone else None,
    }


def contents(lake: Lake) -> list[tuple[Any, ...]]:
    table = lake.table
    rows = [row for file in table.files for row in rows_of(table.storage.root, file)]
    return sorted((row["id"], row["at"], row["text"]) for row in rows)


@settings(max_examples=25, deadline=None)
@example(
    batches=[
        ([(1, 1, "a", False, False)], False),
        ([(1, 1, "b", False, True)], False),
        ([(1, 1, "a", False, False)], True),
    ],
    is_split=False,
    has_cursor=True,
)
@given(
    batches=st.lists(st.tuples(RECORDS, st.booleans()), min_size=2, max_size=6),
    is_split=st.booleans(),
    has_cursor=st.booleans(),
)
def test_any_history_with_skips_equals_one_without(
    batches: list[tuple[list[Record], bool]], is_split: bool, has_cursor: bool
) -> None:
    """Also if rejected records, which arrived in between, are accepted at last."""
    cursor = ("at",) if has_cursor else ()
    with TemporaryDirectory() as folder, without_spark(*([SMALL] if is_split else [])):
        lakes = {
            skips: Lake(cast(SparkProvider, NoSpark()), Path(folder, str(skips)))
            for skips in (True, False)
        }
        for number, (records, replays) in enumerate(batches):
            for skips, lake in lakes.items():
                some = [event(*record[:4], record[4] and number > 0) for record in records]
                sync(lake, frozen(INTEGER if number == 0 else STRING, cursor), some, skips=skips)
                if replays:
                    accept_rejected(lake, frozen(STRING, cursor))
            assert contents(lakes[True]) == contents(lakes[False])


def sync(
    lake: Lake, configured: ConfiguredStream, records: Sequence[Any], *, skips: bool
) -> Committed:
    configured.sync_id = lake.tables().metadata.sync_id + 1
    return lake.sync(configured, *records, on_schema_change="freeze", skips_unchanged=skips)


def accept_rejected(lake: Lake, configured: ConfiguredStream) -> None:
    tables = lake.tables()
    tables.roll_back_companions("replay")
    configured.sync_id = tables.metadata.sync_id + 1
    replay(lake.provider, tables, WriteSpec(configured, "replay"), lake.scratch)


TYPED = {
    "id": INTEGER,
    "number": NUMBER,
    "text": STRING,
    "list": array(STRING),
    "object": {"type": "object", "properties": {"a": NUMBER}},
}
ROW = {"number": 0.0, "text": "", "list": ["a", None], "object": {"a": 1.5}}
KEYED = stream(TYPED, APPEND_DEDUP, key=["id"])
CHANGES: list[dict[str, Any]] = [
    {"number": -0.0},
    {"number": None},
    {"text": None},
    {"text": "x"},
    {"list": ["a"]},
    {"list": None},
    {"list": [None, "a"]},
    {"object": {"a": None}},
    {"object": None},
]


@pytest.mark.parametrize("is_split", [False, True])
def test_a_row_counts_as_unchanged_only_if_each_of_its_values_is_the_same(
    tmp_path: Path, is_split: bool
) -> None:
    with without_spark(*([SMALL] if is_split else [])):
        lake = Lake(cast(SparkProvider, NoSpark()), tmp_path)
        lake.sync(KEYED, {"id": 1, **ROW}, {"id": 2, **ROW})
        for number, change in enumerate(CHANGES):
            row = {"id": 1, **ROW, **change}
            for expected in (1, 2):  # one row changes, and then none
                done = lake.sync(KEYED, row, {"id": 2, **ROW}, value=number)
                assert (done.records, done.unchanged) == (2, expected), change
            done = lake.sync(KEYED, {"id": 1, **ROW})
            assert done.unchanged == 0, change


@pytest.mark.parametrize("history", [False, True])
def test_nothing_is_written_for_rows_that_a_table_has_and_the_state_moves_on(
    lake: Lake, history: bool
) -> None:
    lake.history = history
    users = [{"id": number, **ROW} for number in range(3)]
    lake.sync(KEYED, *users, value={"n": 1})
    tables = lake.tables()
    before = {
        name: t.files for name, t in {"main": tables.main, **tables.companions}.items() if t.exists
    }
    done = lake.sync(KEYED, *users, value={"n": 2})
    tables = lake.tables()
    assert (done.records, done.unchanged) == (3, 3)
    assert '"n":2' in (tables.metadata.state or "").replace(" ", "")
    after = {
        name: t.files for name, t in {"main": tables.main, **tables.companions}.items() if t.exists
    }
    assert after == before
    lake.sync(KEYED, *users, skips_unchanged=False)
    assert lake.table.files != before["main"]


def test_only_files_with_a_row_that_changes_are_rewritten(tmp_path: Path) -> None:
    with without_spark(SMALL, (unchanged, "TRIED", 1)):
        lake = Lake(cast(SparkProvider, NoSpark()), tmp_path)
        for start in (0, 10, 20):
            lake.sync(KEYED, *({"id": start + number, **ROW} for number in range(10)))
        before = {file.path for file in lake.table.files}
        again = [{"id": number, **ROW} for number in range(30)]
        again[15] = {**again[15], "text": "changed"}
        done = lake.sync(KEYED, *again, {"id": 99, **ROW})
        assert (done.records, done.unchanged) == (31, 29)
        assert len(before - {file.path for file in lake.table.files}) == 1
        assert {row[0] for row in texts(lake)} == {*range(30), 99}
        assert (15, "changed") in texts(lake)


def texts(lake: Lake) -> list[tuple[int, str]]:
    table = lake.table
    return [(r["id"], r["text"]) for file in table.files for r in rows_of(table.storage.root, file)]
