"""Every form of a date and a time that ISO 8601 and RFC 3339 allow, on each path that a value takes."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from tests.lake.conforming import Conformer, Row, change_triples, changes
from tests.lake.staging import INTEGER, NTZ, TIMESTAMP, array, struct

MINUTE = datetime.fromisoformat("2024-01-15T10:30")
NEW_YEAR = datetime.fromisoformat("2017-01-01")
HOUR = timedelta(hours=1)
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
"""The ways of a line: Spark's reader takes it, or its fields are parsed once more."""
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


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("text", "clock", "offset"), FORMS, ids=[text for text, *_ in FORMS])
def test_every_form_of_a_time_is_parsed(
    judged: Judged, place: str, text: str, clock: datetime, offset: timedelta | None
) -> None:
    row = judged[place, text]
    instant = (clock - (offset or 0 * HOUR)).replace(tzinfo=timezone.utc)
    assert found(row, "at") == [instant] * 2
    assert found(row, "local") == [clock] * 2
    assert cut(row) == ([] if offset is None else ["local", "nested.local"])


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
