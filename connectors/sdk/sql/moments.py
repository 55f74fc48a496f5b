"""Texts of dates and times, which SQLite and some drivers have in place of values."""

from __future__ import annotations

import datetime as dt
import re

import msgspec

_MOMENT = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d)(:\d\d)?(\.\d{1,6})?0*\s*(Z|[+-]\d\d:?\d\d)?)?",
    re.IGNORECASE,
)


def parse_moment(text: str) -> dt.datetime | None:
    """Return the moment of a text in a form of ISO 8601, with up to six digits of a second."""
    match = _MOMENT.fullmatch(text.strip())
    if match is None:
        return None
    day, clock, seconds, fraction, zone = match.groups()
    text = f"{day}T{clock or '00:00'}{seconds or ':00'}{fraction or ''}{zone or ''}"
    try:
        return msgspec.convert(text, dt.datetime)
    except msgspec.ValidationError:
        return None
