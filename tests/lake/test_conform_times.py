"""Every form of a date and a time that ISO 8601 and RFC 3339 allow, on each path that a value takes."""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elt_assets.lake.worker.values import CLEAN, BecomesNull, cast_times, read_date, read_instant
from tests.lake.conforming import Conformer, Row, change_triples, changes
from tests.lake.staging import INTEGER, NTZ, TIMESTAMP, array, struct

MINUTE = datetime.fromisoformat("2024-01-15T10:30")
NEW_YEAR = datetime.fromisoformat("2017-01-01")
HOUR = timedelta(hours=1)
EPOCH = datetime.fromisoformat("1970-01-01")
UTC = pa.timestamp("us", "UTC")
CUT = ("TRUNCATED", "DESTINATION_FIELD_SIZE_LIMITATION")

FORMS: list[tuple[str, datetime, timedelta | None]] = [
    ("2024-01-15T10:30", MINUTE, None),
    ("2024-01-15 10:30", MINUTE, None),
    ("2024-01-15T10:30Z", MINUTE, 0 * HOUR),
    ("2024-01-15t10:30z", MINUTE, 0 * HOUR),
    ("2024-01-15T10:30+01:00", MINUTE, HOUR),
    ("2024-01-15 10:30-0130", MINUTE, -1.5 * HOUR),
    ("2024-01-15T10:30 +01", MINUTE, HOUR),
    ("2024-01-15T10:30:15-00:00", MINUTE.replace(second=15), 0 * HOUR),
    ("2024-01-15t10:30:15", MINUTE.replace(second=15), None),
    ("2024-01-15T10:30:15,5+01:00", MINUTE.replace(second=15, microsecond=500_000), HOUR),
    ("2024-01-15T10:30:15.123456000Z", MINUTE.replace(second=15, microsecond=123_456), 0 * HOUR),
    ("2024-01-15T10:30:00.000+01:00[Europe/Berlin]", MINUTE, HOUR),
    ("20240115T1030", MINUTE, None),
    ("20240115T1030Z", MINUTE, 0 * HOUR),
    ("20240115T103015+0100", MINUTE.replace(second=15), HOUR),
    ("20240115T103015.25Z", MINUTE.replace(second=15, microsecond=250_000), 0 * HOUR),
    ("2024-01-15T24:00Z", datetime.fromisoformat("2024-01-16"), 0 * HOUR),
    ("2024-12-31T24:00:00.000", NEW_YEAR.replace(year=2025), None),
]
"""A time as sent, the time on its clock, and the clock's offset."""
TOO_FINE: list[tuple[str, datetime]] = [
    ("2024-01-15T10:30:00.123456789", MINUTE.replace(microsecond=123_456)),
    ("2024-01-15T10:30:00,1234560001", MINUTE.replace(microsecond=123_456)),
    ("20240115T103000.0000001", MINUTE),
    ("2016-12-31T23:59:60", NEW_YEAR),
    ("2016-12-31T23:59:60.5", NEW_YEAR.replace(microsecond=500_000)),
    ("20161231T235960", NEW_YEAR),
]
"""A time without a zone, and the part of it that a column holds."""
PLACES = {"clean": "{}", "repaired": '{}, "bad": "x"'}
"""A line that is decoded with its block, and one whose fields are converted one by one."""
SCHEMA = {
    "at": TIMESTAMP,
    "local": NTZ,
    "nested": struct(ats=array(TIMESTAMP), local=NTZ),
    "bad": INTEGER,
}
Judged = dict[tuple[str, str], Row]


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """Every text on both paths, in each place where a time may stand."""
    texts = [text for text, *_ in FORMS] + [text + z for text, _ in TOO_FINE for z in ("", "Z")]
    sent = [(place, text) for place in PLACES for text in texts]
    lines = []
    for place, text in sent:
        nested = f'{{"ats": ["{text}"], "local": "{text}"}}'
        fields = f'"at": "{text}", "local": "{text}", "nested": {nested}'
        lines.append(f"{{{PLACES[place].format(fields)}}}".encode())
    conformer = Conformer(tmp_path_factory.mktemp("segments"))
    return dict(zip(sent, conformer.rows(SCHEMA, lines), strict=True))


def found(row: Row, field: str) -> list[datetime]:
    """The values of a kind of field; instants in UTC."""
    if field == "local":
        return [row["local"], row["nested"]["local"]]
    return [row["at"], *(each.astimezone(timezone.utc) for each in row["nested"]["ats"])]


def cut(row: Row) -> list[str]:
    """The fields that were recorded as cut."""
    assert {
        (change, reason) for field, change, reason in change_triples(row) if field != "bad"
    } <= {CUT}
    return [field for field, *_ in change_triples(row) if field != "bad"]


@pytest.mark.spec("protocol.64")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("text", "clock", "offset"), FORMS, ids=[text for text, *_ in FORMS])
def test_every_form_of_a_time_is_parsed(
    judged: Judged, place: str, text: str, clock: datetime, offset: timedelta | None
) -> None:
    row = judged[place, text]
    read_instant = (clock - (offset or 0 * HOUR)).replace(tzinfo=timezone.utc)
    assert found(row, "at") == [read_instant] * 2
    assert found(row, "local") == [clock] * 2
    assert cut(row) == ([] if offset is None else ["local", "nested.local"])


@pytest.mark.spec("protocol.64")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("text", "clock"), TOO_FINE, ids=[text for text, _ in TOO_FINE])
def test_lost_precision_of_a_time_is_recorded(
    judged: Judged, place: str, text: str, clock: datetime
) -> None:
    everywhere = ["at", "local", "nested.ats", "nested.local"]
    for zone in ("", "Z"):
        row = judged[place, text + zone]
        assert found(row, "at") == [clock.replace(tzinfo=timezone.utc)] * 2
        assert found(row, "local") == [clock] * 2
        assert cut(row) == everywhere


def test_a_zone_in_a_time_without_timezone_is_removed_and_recorded(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    local = {"type": "string", "format": "time", "airbyte_type": "time_without_timezone"}
    conformer = Conformer(tmp_path_factory.mktemp("segments"))
    sent: list[dict[str, Any]] = [{"t": "12:34:56Z"}, {"t": "12:34+01:00"}, {"t": "12:34:56.5"}]
    rows = conformer.rows({"t": local}, sent)
    assert [row["t"] for row in rows] == ["12:34:56", "12:34", "12:34:56.5"]
    assert [change_triples(row) for row in rows] == [[("t", *CUT)]] * 2 + [[]]
    assert changes(rows[2]) == []


def test_an_hour_of_one_digit_gets_its_zero(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Python writes the times of a database in this way (transferwise/pipelinewise-tap-mysql#32)."""
    conformer = Conformer(tmp_path_factory.mktemp("segments"))
    form = {"type": "string", "format": "time"}
    kinds = {kind: {**form, "airbyte_type": kind} for kind in ("time_with_timezone", "other")}
    [row] = conformer.rows(kinds, [{"time_with_timezone": "9:30:00Z", "other": "0:00"}])
    assert (row["time_with_timezone"], row["other"]) == ("09:30:00Z", "00:00")
    assert changes(row) == []


@given(st.datetimes(), st.sampled_from(["", "Z", "+05:30", "-0930", " EST"]), st.booleans())
def test_a_date_is_the_day_of_a_time_and_the_rest_is_recorded(
    at: datetime, zone: str, is_midnight: bool
) -> None:
    at = at.replace(hour=0, minute=0, second=0, microsecond=0) if is_midnight else at
    recorded: list[tuple[str, str]] = []
    days = read_date(at.isoformat() + zone, lambda *change: recorded.append(change))
    assert EPOCH.date() + timedelta(days) == at.date()
    assert recorded == ([CUT] if at.time() != time.min else [])


ENDS = st.datetimes(max_value=datetime(1, 1, 3)) | st.datetimes(min_value=datetime(9999, 12, 30))  # noqa: DTZ001
OFFSETS = st.integers(-17 * 60 - 59, 17 * 60 + 59).map(lambda minutes: timedelta(minutes=minutes))


@given(ENDS | st.datetimes(), OFFSETS)
def test_a_time_that_engines_cannot_read_does_not_fit(clock: datetime, offset: timedelta) -> None:
    """An instant is in the years 1 to 9999 of UTC, whichever way it is read.

    So the table can be read (airbytehq/airbyte#13946, airbytehq/airbyte#15163).
    """
    text = clock.replace(tzinfo=timezone(offset)).isoformat()
    is_clean = re.match(CLEAN["TIMESTAMP"], text)
    try:
        expected = clock - offset
    except OverflowError:
        with pytest.raises(BecomesNull):
            read_instant(text, no_change)
        if is_clean:
            with pytest.raises(pa.ArrowInvalid):
                cast_times("TIMESTAMP", pa.array([text]), UTC)
    else:
        assert EPOCH + timedelta(microseconds=read_instant(text, no_change)) == expected
        if is_clean:
            [value] = cast_times("TIMESTAMP", pa.array([text]), UTC).to_pylist()
            assert value.replace(tzinfo=None) == expected


def no_change(change: str, reason: str) -> None:
    raise AssertionError(change, reason)
