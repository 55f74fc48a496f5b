"""Keys and cursors whose type changes: rows are found and ordered as before, or the sync is refused."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elt_assets.errors import ConfigError
from elt_assets.lake.columns.from_json_schema import columns
from elt_assets.lake.columns.logical_types import (
    is_narrower,
    keeps_equality,
    keeps_order,
    to_stored,
)
from elt_assets.lake.worker.widening import Unfit, widen_values
from elt_assets.protocol.catalog import DELETED_AT
from tests.lake.conforming import Conformer
from tests.lake.harness import Lake
from tests.lake.plain import NoSpark, without_spark
from tests.lake.staging import (
    BOOLEAN,
    DATE,
    INTEGER,
    NUMBER,
    SCALARS,
    STRING,
    TIMESTAMP,
    checkpoint,
    stage,
    stream,
    struct,
)
from tests.lake.test_wider_values import fields


def kind_of(schema: Any) -> Any:
    return to_stored(columns({"properties": {"v": schema}})[0].kind)


PAIRS = [
    (was, now)
    for was in SCALARS
    for now in SCALARS
    if is_narrower(kind_of(SCALARS[was]), kind_of(SCALARS[now]))
]
EQUAL = [(a, b) for a, b in PAIRS if keeps_equality(kind_of(SCALARS[a]), kind_of(SCALARS[b]))]
ORDERED = [(a, b) for a, b in PAIRS if keeps_order(kind_of(SCALARS[a]), kind_of(SCALARS[b]))]


@pytest.mark.unit
def test_the_table_of_safe_changes() -> None:
    family = {
        *[("integer", "big_integer"), ("integer", "number"), ("integer", "big_number")],
        *[("big_integer", "big_number"), ("date", "ntz"), ("date", "timestamp")],
        ("ntz", "timestamp"),
    }
    assert set(EQUAL) == family | {("integer", "string"), ("big_integer", "string")}
    assert set(ORDERED) == family | {("date", "string")}


# The table holds for all values that a source may send

numbers = st.one_of(
    st.integers(-(2**54), 2**54),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(10**38), 10**38),
    st.integers(-(10**6), 10**6).map(lambda number: number / 8),
).map(str)
days = st.sampled_from(["2024-02-28", "2024-02-29", "0001-01-01", "9999-12-31", "1999-12-31"])
midnights = st.sampled_from(["", "T00:00:00", " 00:00:00Z", "T00:00:00.000Z", "T00:00+00:00"])
clocks = st.sampled_from(["T00:00:00", " 23:59:59.999999", "T10:30", ""])
SENT = {
    **dict.fromkeys(["integer", "number", "big_number"], numbers),
    "big_integer": numbers | st.integers().map(lambda number: f'"{number}"'),
    "date": st.builds('"{}{}"'.format, days, midnights),
    "ntz": st.builds('"{}{}"'.format, days, clocks),
}


def keys(conformer: Conformer, schema: Any, sent: list[str]) -> tuple[pa.Array | None, list[int]]:
    """The column of keys that the parse accepts, and the places of the others."""
    lines = [b'{"v":%b}' % value.encode() for value in sent]
    _, dead = conformer.parse(stage(conformer.folder, lines), {"v": schema}, key=[["v"]])
    files = conformer.results[0].files
    found = (
        pq.read_table(Path(conformer.folder, "rows", files[0][0])).column("v").combine_chunks()
        if files
        else None
    )
    return found, [row["place"] for row in dead]


def widened_keys(
    conformer: Conformer, was: str, now: str, data: st.DataObject
) -> tuple[pa.Array, pa.Array, list[str]] | None:
    """Keys of a table, the same in the wider type, and their JSON; None: the table is not widened."""
    sent = data.draw(st.lists(SENT[was], min_size=1, max_size=20))
    present, rejected = keys(conformer, SCALARS[was], sent)
    if present is None:
        return None
    with contextlib.suppress(Unfit):
        wider = widen_values(present, *fields(SCALARS[was], SCALARS[now]))
        return present, wider, [value for place, value in enumerate(sent) if place not in rejected]
    return None


@settings(max_examples=12, suppress_health_check=list(HealthCheck))
@pytest.mark.parametrize(("was", "now"), [pair for pair in EQUAL if pair[0] in SENT])
@given(data=st.data())
def test_a_value_is_the_same_key_in_both_types(
    conformer: Conformer, was: str, now: str, data: st.DataObject
) -> None:
    """A value that is not is in the dead letter, or its table is not widened."""
    case = widened_keys(conformer, was, now, data)
    if case is None:
        return
    present, wider, accepted = case
    as_strings = [json.dumps(str(number)) for number in present.to_pylist()]
    for records in [accepted, as_strings] if now == "string" else [accepted]:
        again, rejected = keys(conformer, SCALARS[now], records)
        values = [] if again is None else again.to_pylist()
        for place in rejected:
            values.insert(place, wider[place].as_py())
        assert values == wider.to_pylist()


@settings(max_examples=12, suppress_health_check=list(HealthCheck))
@pytest.mark.parametrize(("was", "now"), [pair for pair in ORDERED if pair[0] in SENT])
@given(data=st.data())
def test_a_wider_cursor_orders_rows_and_records_as_before(
    conformer: Conformer, was: str, now: str, data: st.DataObject
) -> None:
    case = widened_keys(conformer, was, now, data)
    if case is None:
        return
    present, wider, accepted = case
    records, rejected = keys(conformer, SCALARS[now], accepted)
    if records is None or rejected:
        return
    before = present.cast(pa.int32()).to_pylist() if was == "date" else present.to_pylist()
    for row, present_cursor in zip(wider.to_pylist(), before, strict=True):
        for record, cursor in zip(records.to_pylist(), before, strict=True):
            if cursor != present_cursor:
                assert (record > row) == (cursor > present_cursor)
            else:
                assert record >= row  # what arrives later replaces it, as before


# Syncs


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Lake]:
    """A lake without Spark."""
    with without_spark():
        yield Lake(NoSpark(), tmp_path, is_plain=True)  # type: ignore[arg-type]


def keyed(key: Any, cursor: Any, policy: str = "append_dedup", generation: int = 1) -> Any:
    fields = {"id": key, "at": cursor, DELETED_AT: STRING}
    return stream(fields, policy, key=["id"], cursor=["at"], generation=generation)


@pytest.mark.parametrize(
    ("was", "now", "value", "later", "is_key", "is_cursor"),
    [
        (INTEGER, NUMBER, 5, 5.0, True, True),
        (INTEGER, STRING, 5, "5", True, False),
        (NUMBER, STRING, 5, "5", False, False),
        (DATE, TIMESTAMP, "2024-01-01", "2024-01-01T00:00:00Z", True, True),
        (DATE, STRING, "2024-01-01", "2024-01-01", False, True),
        (TIMESTAMP, STRING, "2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z", False, False),
        (BOOLEAN, STRING, True, "true", False, False),
    ],
)
def test_a_change_goes_on_or_is_refused(
    plain: Lake, was: Any, now: Any, value: Any, later: Any, is_key: bool, is_cursor: bool
) -> None:
    """A refusal names the field, both types, and what to do, before anything is read."""
    for name, is_safe, first, second in (
        ("id", is_key, keyed(was, INTEGER), keyed(now, INTEGER)),
        ("at", is_cursor, keyed(INTEGER, was), keyed(INTEGER, now)),
    ):
        lake = Lake(plain.provider, plain.folder / name, is_plain=True)
        lake.sync(first, {"id": 1, "at": 1, name: value}, value=1)
        if is_safe:
            lake.sync(second, {"id": 1, "at": 1, name: later}, value=2)
            assert lake.table.records == 1
            continue
        with pytest.raises(ConfigError, match=rf"'{name}' changes(?s:.)*--refresh truncate"):
            lake.writer(second)
        assert lake.table.metadata.sequence == 1
        lake.writer(second, on_schema_change="freeze")


def test_a_key_does_not_become_json(plain: Lake) -> None:
    """A number that a record has for a string is `"5"` before and `5` after."""
    plain.sync(keyed(STRING, INTEGER), {"id": 5, "at": 1}, value=1)
    with pytest.raises(ConfigError, match="changes from string to JSON text"):
        plain.writer(keyed({}, INTEGER))


def test_a_refresh_may_change_any_type(plain: Lake) -> None:
    plain.sync(keyed(NUMBER, INTEGER), {"id": 5, "at": 9}, {"id": 6, "at": 9, DELETED_AT: "x"})
    again = keyed(STRING, STRING, generation=2)
    again.minimum_generation_id = 2
    plain.sync(again, {"id": "5.0", "at": "10"}, value=1)
    plain.sync(keyed(STRING, STRING, generation=2), {"id": "5.0", "at": "11"}, value=2)
    assert plain.table.records == 1


def test_rows_without_a_key_may_change_any_type(plain: Lake) -> None:
    plain.sync(stream({"id": NUMBER}, cursor=["id"]), {"id": 5})
    plain.sync(stream({"id": STRING}, cursor=["id"]), {"id": "5.0"})
    assert plain.table.records == 2


def test_a_table_without_rows_may_change_any_type(plain: Lake) -> None:
    plain.writer(keyed(NUMBER, INTEGER)).commit(checkpoint(1, final=True))
    plain.sync(keyed(STRING, STRING), {"id": "5.0", "at": "9"}, value=2)
    assert plain.table.records == 1


def test_partitions_that_are_replaced_may_change_any_type(plain: Lake) -> None:
    for generation, kind, value in ((1, NUMBER, 5), (2, STRING, "5.0")):
        replaced = keyed(kind, INTEGER, "overwrite_dedup", generation)
        plain.sync(replaced, {"id": value, "at": 1}, value=1, partition="a")
    assert plain.table.records == 1


def test_a_history_is_never_ordered_in_another_way(plain: Lake) -> None:
    """A history keeps its rows in a refresh."""
    plain.history = True
    plain.sync(keyed(NUMBER, DATE), {"id": 5, "at": "2024-01-01"}, value=1)
    for key, cursor, field in ((STRING, DATE, "id"), (NUMBER, STRING, "at")):
        for refreshes in (False, True):
            changed = keyed(key, cursor, generation=2)
            changed.minimum_generation_id = 2 * refreshes
            with pytest.raises(
                ConfigError, match=rf"'{field}'(?s:.)*elt reset CONNECTION STREAM --data"
            ):
                plain.writer(changed)


def test_a_source_does_not_change_the_order_in_the_middle_of_a_sync(plain: Lake) -> None:
    for name, change in (("key", (STRING, INTEGER)), ("cursor", (NUMBER, STRING))):
        lake = Lake(plain.provider, plain.folder / name, is_plain=True)
        writer = lake.writer(keyed(NUMBER, INTEGER))
        writer.change_schema(keyed(NUMBER, NUMBER))
        writer.change_schema(keyed(NUMBER, INTEGER))
        writer.write(lake.stage({"id": 5, "at": 9}))
        with pytest.raises(ConfigError, match=f"the type of the {name}(?s:.)*for the whole sync"):
            writer.change_schema(keyed(*change))


def test_a_cursor_of_text_is_no_number_in_the_catalog(plain: Lake) -> None:
    plain.sync(keyed(INTEGER, STRING), {"id": 5, "at": "9"}, value=1)
    with pytest.raises(ConfigError, match="a number in the catalog and string in the table"):
        plain.writer(keyed(INTEGER, INTEGER))
    plain.writer(keyed(INTEGER, TIMESTAMP))  # its texts stay as sent
    plain.writer(keyed(INTEGER, INTEGER), on_schema_change="freeze")


def test_a_nested_key_is_looked_at_too(plain: Lake) -> None:
    def nested(kind: Any) -> Any:
        wanted = stream({"part": struct(id=kind), "at": INTEGER}, "append_dedup", cursor=["at"])
        wanted.primary_key = [["part", "id"]]
        return wanted

    plain.writer(nested(NUMBER)).commit(checkpoint(1, final=True))
    writer = plain.writer(nested(NUMBER))
    writer.write(plain.stage({"part": {"id": 5}, "at": 1}))
    with pytest.raises(ConfigError, match=r"the key 'part\.id' changes from double to string"):
        writer.change_schema(nested(STRING))
