"""Formats of date-times: every form that manifests use, and values that have one of several."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.declarative.cursors.times.formats import DatetimeFormat, DatetimeFormats

pytestmark = pytest.mark.unit

UTC = timezone.utc
NINE = datetime(2024, 2, 29, 9, 5, 7, 123456, UTC)

DATES = st.integers(-(2 * 10**15), 4 * 10**15).map(
    lambda microseconds: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
)

FORMS = [
    # format, text of NINE, what the text means
    ("%s", "1709197507", NINE.replace(microsecond=0)),
    ("%s_as_float", "1709197507.123456", NINE),
    ("%ms", "1709197507123", NINE.replace(microsecond=123000)),
    ("%epoch_microseconds", "1709197507123456", NINE),
    ("%Y-%m-%d", "2024-02-29", datetime(2024, 2, 29, tzinfo=UTC)),
    ("%Y-%m-%dT%H:%M:%SZ", "2024-02-29T09:05:07Z", NINE.replace(microsecond=0)),
    ("%Y-%m-%dT%H:%M:%S.%fZ", "2024-02-29T09:05:07.123456Z", NINE),
    ("%Y-%m-%dT%H:%M:%S.%f%z", "2024-02-29T09:05:07.123456+0000", NINE),
    ("%Y-%m-%dT%H:%M:%S%z", "2024-02-29T09:05:07+0000", NINE.replace(microsecond=0)),
    ("%Y-%m-%dT%H:%M:%S.%_msZ", "2024-02-29T09:05:07.123Z", NINE.replace(microsecond=123000)),
    ("%Y-%m-%dT%H:%M:%S+00:00", "2024-02-29T09:05:07+00:00", NINE.replace(microsecond=0)),
    ("%Y-%m-%dT%H:%M:%S.000Z", "2024-02-29T09:05:07.000Z", NINE.replace(microsecond=0)),
    ("%Y/%m/%d %H:%M", "2024/02/29 09:05", NINE.replace(second=0, microsecond=0)),
    ("%Y%m%d", "20240229", datetime(2024, 2, 29, tzinfo=UTC)),
    ("%m/%d/%Y", "02/29/2024", datetime(2024, 2, 29, tzinfo=UTC)),
    ("Date(%Y-%m-%d)", "Date(2024-02-29)", datetime(2024, 2, 29, tzinfo=UTC)),
    ("%a, %d %b %Y %H:%M:%S GMT", "Thu, 29 Feb 2024 09:05:07 GMT", NINE.replace(microsecond=0)),
    ("%B %d, %Y %I:%M %p", "February 29, 2024 09:05 AM", NINE.replace(second=0, microsecond=0)),
    ("%d.%m.%y", "29.02.24", datetime(2024, 2, 29, tzinfo=UTC)),
    ("100%% of %Y", "100% of 2024", datetime(2024, 1, 1, tzinfo=UTC)),
]


@pytest.mark.spec("builder.7")
@pytest.mark.parametrize(("written", "text", "means"), FORMS)
def test_every_form_is_written_and_parsed(written: str, text: str, means: datetime) -> None:
    each = DatetimeFormat(written)
    assert each.format(NINE) == text
    assert each.parse(text) == means
    assert each.parse(text).tzinfo is not None


@settings(deadline=None)
@given(st.sampled_from(FORMS), DATES)
def test_a_date_time_that_is_written_and_parsed_loses_only_what_the_form_does_not_have(
    form: tuple[str, str, datetime], moment: datetime
) -> None:
    each = DatetimeFormat(form[0])
    parsed = each.parse(each.format(moment))
    if "%y" not in form[0]:
        assert parsed <= moment
    assert each.format(parsed) == each.format(moment)


@settings(deadline=None)
@given(st.datetimes(timezones=st.just(UTC)), st.sampled_from(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S.%fZ"]))
def test_years_have_four_digits(moment: datetime, written: str) -> None:
    each = DatetimeFormat(written)
    assert each.parse(each.format(moment)).date() == moment.date()


@pytest.mark.parametrize(
    ("written", "value", "means"),
    [
        ("%s", 1709197507, "2024-02-29T09:05:07+00:00"),
        ("%s", -1, "1969-12-31T23:59:59+00:00"),
        ("%s", 0, "1970-01-01T00:00:00+00:00"),
        ("%ms", 1, "1970-01-01T00:00:00.001000+00:00"),
        ("%s_as_float", 1.5, "1970-01-01T00:00:01.500000+00:00"),
        ("%Y%m%d", 20240229, "2024-02-29T00:00:00+00:00"),
        ("%Y-%m-%dT%H:%M:%S%z", "2024-01-01T00:00:00Z", "2024-01-01T00:00:00+00:00"),
        ("%Y-%m-%dT%H:%M:%S%z", "2024-01-01T00:00:00-04:30", "2024-01-01T00:00:00-04:30"),
        ("%Y-%m-%dT%H:%M:%S.%fZ", "2024-01-01T00:00:00.5Z", "2024-01-01T00:00:00.500000+00:00"),
        ("%Y-%m-%d", "2024-1-5", "2024-01-05T00:00:00+00:00"),
        ("%Y-%m-%dT%H", "2024-01-01t05", "2024-01-01T05:00:00+00:00"),
    ],
)
def test_values_are_parsed_as_strptime_does(written: str, value: Any, means: str) -> None:
    assert DatetimeFormat(written).parse(value).isoformat() == means


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("%Y-%m-%d", "2024-02-30"),
        ("%Y-%m-%d", "2024-02-28T00:00:00"),
        ("%Y-%m-%dT%H:%M:%S%z", "2024-01-01T00:00:00+00:75"),
        ("%s", "yesterday"),
        ("%s", "1709197507.5"),
        ("%s", 10**30),
        ("%s_as_float", float("nan")),
        ("%s_as_float", float("inf")),
        ("%ms", "9" * 40),
        ("%Q", "2024"),
        ("%Y %Y", "2024 2024"),
    ],
)
def test_a_value_of_another_form_is_an_error(written: str, value: Any) -> None:
    assert DatetimeFormat(written).moment(value) is None


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("%Y-%m-%dT%H:%M:%S-12:00", "2024-01-01T00:00:00-12:00"),
        ("%Y-%m-%d %H:%M +0530", "2024-01-01 17:30 +0530"),
        ("%b %d %Y %H:%M:%S.%f+00:00", "Jan 01 2024 12:00:00.000000+00:00"),
        ("%d %b %Y %H+01:00", "01 Jan 2024 13+01:00"),
    ],
)
def test_a_zone_that_is_written_out_after_the_time_counts(written: str, text: str) -> None:
    form, noon = DatetimeFormat(written), datetime(2024, 1, 1, 12, tzinfo=timezone.utc)
    assert form.format(noon) == text
    assert form.parse(text) == noon
    assert DatetimeFormats([written]).extremes([text, text]).latest == noon


@pytest.mark.parametrize(
    ("zone", "text"),
    [("-12:00", "12:00:00-12:00"), ("+01:00", "13:00:00+01:00"), ("Z", "12:00:00Z")],
)
def test_a_state_with_a_zone_that_is_written_out_is_the_earlier_of_its_two_meanings(
    zone: str, text: str
) -> None:
    """A state of the Airbyte CDK has the time in UTC before the zone, or that of a record with the zone."""
    form, noon = (
        DatetimeFormat(f"%H:%M:%S{zone}").make_state_format(),
        datetime(1900, 1, 1, 12, tzinfo=timezone.utc),
    )
    assert form.format(noon) == text
    assert form.parse(text) == noon
    assert form.parse(text) <= DatetimeFormat(f"%H:%M:%S{zone}").parse(text)


@pytest.mark.parametrize("written", ["%Y-%m-%d-0500", "%Y-%m-%dT%H:%M:%S-99:00", "%H:%M:%S-5"])
def test_other_numbers_at_the_end_of_a_form_are_no_zone(written: str) -> None:
    noon = datetime(2024, 1, 1, 12, tzinfo=timezone.utc)
    assert DatetimeFormat(written).format(noon) == noon.strftime(written)


def test_a_form_without_a_zone_is_in_utc() -> None:
    moment = datetime(2024, 1, 1, 1, tzinfo=timezone(timedelta(hours=2)))
    assert DatetimeFormat("%Y-%m-%dT%H:%M:%SZ").format(moment) == "2023-12-31T23:00:00Z"
    assert DatetimeFormat("%Y-%m-%d").format(moment) == "2023-12-31"
    assert DatetimeFormat("%Y-%m-%dT%H:%M:%S%z").format(moment) == "2024-01-01T01:00:00+0200"


def test_the_first_form_that_fits_counts() -> None:
    formats = DatetimeFormats(["%d/%m/%Y", "%m/%d/%Y", "%s"])
    assert formats.parse("01/02/2024").isoformat()[:10] == "2024-02-01"
    assert formats.parse("01/31/2024").isoformat()[:10] == "2024-01-31"
    assert formats.parse(0).isoformat()[:10] == "1970-01-01"


def test_another_form_of_iso_8601_is_parsed_where_iso_8601_is_expected() -> None:
    text = "2024-01-01T00:00:00.123456789+02:00"
    assert DatetimeFormats(["%Y-%m-%d"]).parse(text) == datetime(
        2023, 12, 31, 22, 0, 0, 123456, UTC
    )
    with pytest.raises(ValueError, match="does not have the format '%s'"):
        DatetimeFormats(["%s"]).parse(text)


@pytest.mark.parametrize("value", [None, True, {}, [], "", "null", b"2024-01-01", float("nan")])
def test_what_is_no_date_time_has_no_moment(value: Any) -> None:
    assert DatetimeFormats(["%Y-%m-%d", "%s", "%s_as_float"]).moment(value) is None


MIXED = ["%Y-%m-%dT%H:%M:%S.%f%z", "%Y-%m-%dT%H:%M:%SZ", "%d %b %Y", "%s", "%ms", "%s_as_float"]


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(MIXED), min_size=1, max_size=3, unique=True).flatmap(
        lambda formats: st.tuples(
            st.just(formats),
            st.lists(
                st.one_of(
                    st.tuples(DATES, st.sampled_from(formats)).map(
                        lambda pair: DatetimeFormat(pair[1]).format(pair[0])
                    ),
                    st.integers(-(10**11), 10**13),
                    st.floats(0, 1e10),
                    st.sampled_from([None, "", "none", "2024-01-01T00:00:00.5+02:00", True]),
                )
            ),
        )
    )
)
def test_the_extremes_are_those_of_the_parsed_values(drawn: tuple[list[str], list[Any]]) -> None:
    formats, values = DatetimeFormats(drawn[0]), drawn[1]
    moments = [moment for moment in map(formats.moment, values) if moment is not None]
    found = formats.extremes(values)
    assert found.earliest == min(moments, default=None)
    assert found.latest == max(moments, default=None)
    assert found.missing == len(values) - len(moments)


@settings(deadline=None)
@given(
    st.sampled_from(
        [
            "%Y-%m-%d",
            "%Y-%m-%dT%H:%M:%SZ",
            "%Y-%m-%dT%H:%M:%S.%f%z",
            "%s",
            "%ms",
            "%d.%m.%Y",
            "%y%m%d",
        ]
    ),
    st.lists(DATES, min_size=1),
    st.booleans(),
)
def test_the_extremes_of_values_of_one_form_are_exact(
    written: str, moments: list[datetime], in_zones: bool
) -> None:
    each = DatetimeFormat(written)
    zones = [UTC, timezone(timedelta(hours=14)), timezone(timedelta(hours=-11))]
    texts = [
        each.format(moment.astimezone(zones[number % 3]) if in_zones else moment)
        for number, moment in enumerate(moments)
    ]
    found = DatetimeFormats([written]).extremes(texts)
    parsed = sorted(map(each.parse, texts))
    assert (found.earliest, found.latest, found.missing) == (parsed[0], parsed[-1], 0)
