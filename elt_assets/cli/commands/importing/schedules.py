"""Schedules of other programs, as cron expressions of five fields."""

from __future__ import annotations

import re

_BASIC = re.compile(
    r"(?:every\s+)?(?P<units>\d+)\s*(?P<unit>minute|hour|day|week)s?", re.IGNORECASE
)
_NAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_QUARTZ_FIELDS = (6, 7)
_ONLY_QUARTZ = re.compile(r"[LW#]|\d+C")


def convert_interval(text: str) -> str | None:
    """Return the cron expression of an interval: `@daily`, or as it is; None if it has no counterpart."""
    if text.lower() in _NAMES:
        return _NAMES[text.lower()]
    return text if len(text.split()) == 5 else None


def convert_basic(text: str) -> str | None:
    """Return the cron expression of `Every 6 hours`; None if cron has none with equal intervals."""
    match = _BASIC.fullmatch(text.strip())
    if match is None:
        return None
    units, unit = int(match["units"]), match["unit"].lower()
    if unit == "hour" and units and units % 24 == 0:
        units, unit = units // 24, "day"
    if unit == "minute" and units and 60 % units == 0:
        return "0 * * * *" if units == 60 else f"*/{units} * * * *"
    if unit == "hour" and units and 24 % units == 0:
        return f"0 */{units} * * *" if units > 1 else "0 * * * *"
    if units == 1:
        return {"day": "0 0 * * *", "week": "0 0 * * 0"}.get(unit)
    return None


def convert_quartz(text: str) -> str | None:
    """Return the cron expression of a Quartz expression; None if it has no counterpart.

    Quartz has seconds before and a year behind the fields of cron, and counts the days of the week from 1.
    """
    fields = text.split()
    if (
        len(fields) not in _QUARTZ_FIELDS
        or not fields[0].isdigit()
        or fields[6:] not in ([], ["*"])
    ):
        return None
    minute, hour, day, month, weekday = fields[1:6]
    if _ONLY_QUARTZ.search(day) or _ONLY_QUARTZ.search(re.sub("[A-Z]{3}", "", weekday.upper())):
        return None
    if not re.search("[A-Za-z]", weekday):
        weekday = re.sub(r"(?<![/\d])\d+", lambda number: str(int(number.group()) - 1), weekday)
    return " ".join([minute, hour, *(field.replace("?", "*") for field in (day, month, weekday))])
