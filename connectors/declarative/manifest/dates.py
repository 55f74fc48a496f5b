"""Date-times as the functions of templates read and write them.

Spec: the interpolation macros of the Airbyte CDK.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from importlib import import_module

UTC = timezone.utc
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)"
    r"(?:[T ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?(?:(Z)|([+-])(\d\d):(\d\d))?)?",
    re.ASCII,
)


def parse_iso(text: str) -> datetime:
    """Return an ISO 8601 date or date-time in UTC; a text without a zone is in UTC.

    Raises:
        ValueError: the text is not ISO 8601.
    """
    match = _ISO.fullmatch(text)
    if match is None:
        return _parse_other_iso(text)
    year, month, day, hour, minute, second, fraction, _, sign, hours, minutes = match.groups()
    micro = int((fraction or "0").ljust(6, "0"))
    parsed = datetime(  # the other fields are None together
        *(int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0)),
        micro,
        tzinfo=UTC,
    )
    if sign is None:
        return parsed
    offset = timedelta(hours=int(hours), minutes=int(minutes))
    return parsed - offset if sign == "+" else parsed + offset


def _parse_other_iso(text: str) -> datetime:
    parser = import_module("dateutil.parser")  # few manifests need the other forms
    parsed: datetime = parser.isoparse(text)
    return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)


def parse_datetime(value: str | float, format: str) -> datetime:  # noqa: A002 - the word of manifests
    """Return a date-time that has a format of the CDK; one without a zone is in UTC.

    Args:
        value: the text or the number.
        format: a format of `strptime`, or `%s`, `%s_as_float`, `%ms`, `%epoch_microseconds`; `%_ms` is a
            fraction of a second.

    Raises:
        ValueError: the value does not have the format.
    """
    if format == "%s":
        return EPOCH + timedelta(seconds=int(value))
    if format == "%s_as_float":
        return datetime.fromtimestamp(float(value), tz=UTC)
    if format == "%ms":
        return EPOCH + timedelta(milliseconds=int(value))
    if format == "%epoch_microseconds":
        return EPOCH + timedelta(microseconds=int(value))
    parsed = datetime.strptime(str(value), format.replace("%_ms", "%f"))  # noqa: DTZ007 - next line
    return parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)


def format_datetime(moment: datetime, format: str) -> str:  # noqa: A002 - the word of manifests
    """Return a date-time in a format of `parse_datetime`. Epoch formats do not depend on the local zone."""
    since_epoch = moment - EPOCH
    seconds = str(since_epoch // timedelta(seconds=1))
    if format == "%s":
        return seconds
    if format == "%s_as_float":
        return str(moment.timestamp())
    if format == "%ms":
        return str(since_epoch // timedelta(milliseconds=1))
    if format == "%epoch_microseconds":
        return str(since_epoch // timedelta(microseconds=1))
    if "%_ms" in format:
        format = format.replace("%_ms", f"{moment.microsecond // 1000:03}")  # noqa: A001
    if "%s" in format:
        format = re.sub(r"(?<!%)((?:%%)*)%s", rf"\g<1>{seconds}", format)  # noqa: A001
    return moment.strftime(format)
