"""Boundaries at which the intervals of a cursor begin: days, weeks or months."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from connectors.declarative.cursors.settings import text_of
from connectors.declarative.manifest import components
from elt_assets.errors import ConfigError

_WEEKDAYS = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")
_TARGETS = ("DAY", "WEEK", "MONTH")


class Clamp:
    """The first moments of days, weeks or months.

    Args:
        target: DAY, WEEK or MONTH.
        weekday: the first day of a week, from 0 for Monday.
    """

    def __init__(self, target: str, weekday: int = 0):
        self._target = target
        self._weekday = weekday

    @property
    def smallest(self) -> timedelta:
        """Smallest unit of time where the cursor has no granularity."""
        return timedelta(seconds=1) if self._target == "DAY" else timedelta(days=1)

    def floor(self, moment: datetime) -> datetime:
        """Return the last boundary at or before a time."""
        day = moment.replace(hour=0, minute=0, second=0, microsecond=0)
        if self._target == "MONTH":
            return day.replace(day=1)
        if self._target == "WEEK":
            return day - timedelta(days=(day.weekday() - self._weekday) % 7)
        return day

    def ceil(self, moment: datetime) -> datetime:
        """Return the first boundary at or after a time."""
        floor = self.floor(moment)
        if floor == moment:
            return moment
        if self._target == "MONTH":
            return self.floor(floor + timedelta(days=31))
        return floor + timedelta(days=7 if self._target == "WEEK" else 1)


def clamp_of(component: components.Clamping | None, config: Mapping[str, Any]) -> Clamp | None:
    """Return the boundaries that a component describes; None if there is no component.

    Raises:
        ConfigError: the boundaries are unknown.
    """
    if component is None:
        return None
    target = text_of(component.target, config)
    weekday = text_of((component.target_details or {}).get("weekday"), config)
    if target not in _TARGETS or (target == "WEEK" and weekday not in _WEEKDAYS):
        raise ConfigError(
            f"{component.place} does not name known boundaries",
            guidance="write DAY, MONTH, or WEEK with `target_details: {weekday: MONDAY}`",
        )
    return Clamp(target, _WEEKDAYS.index(weekday) if target == "WEEK" else 0)
