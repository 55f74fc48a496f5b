"""Limits of reads: hours, paces, and what a dialect must bring for them."""

from __future__ import annotations

import datetime as dt
import sqlite3
import time
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from connectors.sdk import ConfigError
from connectors.sql.limits import ReadLimits
from elt_assets.errors import TransientError
from tests.connectors.sql.limits import INSIDE, OUTSIDE, write_hours
from tests.connectors.sql.sources import FileConfig, Sqlite
from tests.connectors.sql.test_reads import configure

ZONES = st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kathmandu", "America/St_Johns"])
TIMES = st.times().map(lambda value: f"{value:%H:%M}")


@given(TIMES, TIMES, ZONES, st.integers(1_500_000_000_000, 1_900_000_000_000))
def test_hours_are_those_of_a_clock_on_the_wall(
    begin: str, end: str, zone: str, milliseconds: int
) -> None:
    if begin == end:
        return
    limits = ReadLimits(hours=f"{begin}-{end}", timezone=zone)
    now = dt.datetime.fromtimestamp(milliseconds / 1000, dt.timezone.utc)
    clock = f"{now.astimezone(ZoneInfo(zone)):%H:%M:%S.%f}"
    is_within = begin <= clock < end if begin < end else clock >= begin or clock < end
    left = limits.seconds_left(now)
    assert left is not None and (left > 0) == is_within
    if is_within:
        wall = now.astimezone(ZoneInfo(zone)).replace(tzinfo=None) + dt.timedelta(seconds=left)
        assert f"{wall:%H:%M}" == end


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"hours": "22:00-22:00"}, "hours ends when it begins"),
        ({"hours": "24:00-06:00"}, "should match pattern"),
        ({"timezone": "Middle/Earth"}, "no time zone"),
        ({"rows_per_second": 3, "connections": 4}, "less than one row for each"),
        ({"connections": 0}, "greater than or equal to 1"),
        ({"row_per_second": 4}, "Extra inputs"),
    ],
)
def test_limits_that_make_no_sense_are_refused(config: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        ReadLimits(**config)


def test_the_connections_share_the_rows_of_a_second() -> None:
    limits = ReadLimits(rows_per_second=400, connections=2)
    begin = time.monotonic()
    batches = [pa.RecordBatch.from_pydict({"n": list(range(count))}) for count in (90, 0, 30)]
    sizes = [len(part) for part in limits.pace(batches)]
    assert sum(sizes) == 120 and time.monotonic() - begin >= 0.59
    assert [len(part) for part in ReadLimits(rows_per_second=50).pace(batches[2:])] == [30]
    assert ReadLimits(rows_per_second=50).readers == 1


class Config(FileConfig):
    """A file, and limits."""

    limits: ReadLimits = ReadLimits()


class Limited(Sqlite):
    config_type = Config

    def limits(self, config: Config) -> ReadLimits:
        return config.limits


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "shop.db"
    with sqlite3.connect(file) as connection:
        connection.executescript(
            "CREATE TABLE t (id INTEGER PRIMARY KEY); INSERT INTO t VALUES (1)"
        )
    return file


def open_stream(path: Path, **limits: Any) -> Any:
    (stream,) = Limited().open({"path": str(path), "limits": limits})
    return stream


def test_a_source_of_your_own_reads_whole_tables_within_the_hours(path: Path) -> None:
    stream = open_stream(path, hours=write_hours(*INSIDE))
    (part, _) = stream.slices(configure(stream, None), None)
    assert [len(batch) for batch in stream.read_slice(part.data)] == [1]
    later = open_stream(path, hours=write_hours(*OUTSIDE))
    with pytest.raises(TransientError, match=r"only within `limits\.hours`") as error:
        list(later.slices(configure(later, None), None))
    assert "run it again within these hours" in (error.value.guidance or "")
    with pytest.raises(TransientError, match=r"`limits\.hours`"):  # the hours end in mid-read
        list(later.read_slice(part.data))


def test_new_rows_by_a_cursor_are_read_at_any_hour(path: Path) -> None:
    stream = open_stream(path, hours=write_hours(*OUTSIDE))
    state = {"cursor": "id", "value": 0, "rows": 0}
    parts = list(stream.slices(configure(stream, "id"), state))
    assert [len(batch) for batch in stream.read_slice(parts[0].data)] == [1]


@pytest.mark.parametrize(
    ("limit", "method"),
    [
        ({"connections": 2}, "lock_reader"),
        ({"rows_per_second": 2}, "lock_reader"),
        ({"statement_seconds": 2}, "limit_statements"),
    ],
)
def test_a_limit_that_a_dialect_cannot_keep_is_refused_by_name(
    path: Path, limit: dict[str, int], method: str
) -> None:
    with pytest.raises(ConfigError, match=f"its dialect has no `{method}`") as error:
        open_stream(path, **limit)
    assert "remove the limit" in (error.value.guidance or "")
