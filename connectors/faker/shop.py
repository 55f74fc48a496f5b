"""The config of the shop, and the base class of its tables."""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from hashlib import blake2b
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from connectors.sdk import Checkpoint, Stream, Window
from connectors.sdk.items import Item, Record
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import FULL_REFRESH, ConfiguredStream

DAY = timedelta(days=1)
MICROSECOND = timedelta(microseconds=1)
DAY_US = DAY // MICROSECOND

STRING, INTEGER, NUMBER = ({"type": kind} for kind in ("string", "integer", "number"))
INSTANT = {"type": "string", "format": "date-time", "airbyte_type": "timestamp_with_timezone"}


def schema(**properties: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of records with these fields."""
    draft = "http://json-schema.org/draft-07/schema#"
    return {"$schema": draft, "type": "object", "properties": properties}


class Shop(BaseModel):
    """A small shop whose data changes every day."""

    model_config = ConfigDict(extra="forbid", title="A small shop whose data changes every day")

    count: int = Field(1000, title="Users at the start", ge=1, le=1_000_000_000)
    seed: int = Field(42, title="The same seed gives the same data")
    start: str = Field(
        "2026-01-01T00:00:00Z",
        title="Start of day 0",
        pattern=r"^(19|20)\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)$",
    )
    records_per_state: int = Field(500, title="Records between checkpoints", ge=1)
    days: int | None = Field(None, title="Number of days with events; by default without end", ge=1)
    delay_ms: float = Field(0, title="Milliseconds to wait at a checkpoint", ge=0)
    all_streams: bool = Field(
        False,
        title="Also streams with deletes, late records, many columns, nested objects and partitions",
    )
    api_key: SecretStr | None = Field(None, title="Not used; shows how secrets are handled")

    @field_validator("start")
    @classmethod
    def _check_start(cls, value: str) -> str:
        instant(value)
        return value

    @cached_property
    def opening(self) -> datetime:
        """The start of day 0 in UTC, without a zone."""
        return instant(self.start)

    def time(self, microseconds: int) -> str:
        """Return the time after the start, always with six decimals, so that it sorts as text."""
        moment = self.opening + microseconds * MICROSECOND
        return moment.isoformat(timespec="microseconds") + "Z"


def instant(text: str) -> datetime:
    """Return a date-time in UTC, without a zone."""
    moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return moment.replace(tzinfo=None) - (moment.utcoffset() or timedelta())


class ShopStream(Stream, ABC):
    """One table of the shop: a log of row versions, ordered by `updated_at`.

    Rows are numbered from 0 in the order of their creation; `id` is one more. Days before day 0 have no log,
    but rows are created on them: the initial rows are created on the about twenty days that end with day 0,
    so the shop starts in its steady state. A row changes at most once a day, so that its content depends
    only on its number and the day, and no history is replayed.
    """

    primary_key: Sequence[str] = ("id",)
    replication_key = "updated_at"
    order: str | None = "ascending"
    is_resumable = True

    def __init__(self, shop: Shop, initial: int, seed: str | None = None):
        self.shop = shop
        self.initial = initial
        self.daily = max(1, round(initial / 20))
        self.seed = seed or self.name
        self.STATE_MSG_FREQUENCY = shop.records_per_state

    @abstractmethod
    def row(self, number: int, day: int) -> Record:
        """Return the row as it is since `day`, without `updated_at`."""

    def records(self, window: Window) -> Iterator[Record]:
        """Yield one day, from a position in the log. Event i happens at (i + 1) / size of the day: the last
        one at the end of the day."""
        day, after = self._position(window.start)
        if self.shop.days is not None and day >= self.shop.days:
            return
        if not window.partition:
            self.estimate(self._count(day, after))
        for number, record in enumerate(self._day(day, after), 1):
            yield record
            if number % self.shop.records_per_state == 0:
                time.sleep(self.shop.delay_ms / 1000)

    def _day(self, day: int, after: int) -> Iterable[Record]:
        """Yield the events of a day after a microsecond of it."""
        log = self._log(day)
        size = len(log)
        for i in range(_first(size, after), size):
            moment = self.shop.time(day * DAY_US + (i + 1) * DAY_US // size)
            yield {**self.row(log[i], day), "updated_at": moment}

    def _count(self, day: int, after: int) -> int:
        """Return the number of events of a day after a microsecond of it."""
        size = len(self._log(day))
        return size - _first(size, after)

    def read(self, configured: ConfiguredStream, state: dict[str, Any] | None) -> Iterator[Item]:
        """Yield one day. A full refresh reads only day 0: it has nothing to read from the state at its end.

        Raises:
            ConfigError: the state is not of this shop.
        """
        if state is not None and self._is_over(configured, state):
            yield Checkpoint(self.load_state(state))
            return
        yield from super().read(configured, state)

    def load_state(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return a state of the version that had `clock`, the end of the day, as a bookmark."""
        if "clock" not in state:
            return state
        try:
            clock, updated_at = instant(state["clock"]), instant(state["updated_at"])
        except (KeyError, TypeError, ValueError, AttributeError):
            raise self._foreign_state(state) from None
        if (clock - self.shop.opening) % DAY or updated_at > clock:
            raise self._foreign_state(state)
        return {"replication_key": "updated_at", "replication_key_value": state["updated_at"]}

    def has_new_data(self, configured: ConfiguredStream, state: dict[str, Any] | None) -> bool:
        return not self._is_over(configured, {} if state is None else state)

    def _is_over(self, configured: ConfiguredStream, state: dict[str, Any]) -> bool:
        """Return whether a read from a state finds no events."""
        last = 1 if configured.sync_mode == FULL_REFRESH else self.shop.days
        if last is None:
            return False
        contexts, entries = self.partitions(), [self.load_state(state)]
        if contexts is not None:
            entries = entries[0].get("partitions", [])
            if len(entries) < len(list(contexts)):
                return False
        reached = (self._position(entry.get("replication_key_value")) for entry in entries)
        return all(day >= last for day, _ in reached)

    def _position(self, start: Any) -> tuple[int, int]:
        """Return the day to read, and the microsecond of that day after which to read."""
        if start is None:
            return 0, 0
        try:
            passed = instant(start) - self.shop.opening
        except (TypeError, ValueError, AttributeError):
            raise self._foreign_state(start) from None
        if passed < timedelta():
            raise self._foreign_state(start)
        day, rest = divmod(passed, DAY)
        return day, rest // MICROSECOND

    def _foreign_state(self, state: Any) -> ConfigError:
        message = f"the state of stream {self.name!r} belongs to another shop or `start`: {state}"
        return ConfigError(message, guidance="reset the state, or restore the previous `start`")

    def _log(self, day: int) -> Sequence[int]:
        """Return the numbers of the rows that are created or changed on a day, in the order of events."""
        if day == 0:
            return range(self.initial)
        changed, created = self._list_changed(day), self.created(day, day)
        # Both are mixed evenly. Of two rows at the same time, the older one is first: see `created_at`.
        mix = [(n / len(rows), row) for rows in (changed, created) for n, row in enumerate(rows, 1)]
        return [row for _, row in sorted(mix)]

    def _list_changed(self, day: int) -> Sequence[int]:
        rng = random.Random(f"{self.shop.seed}:{self.seed}:{day}")
        return rng.sample(range(self.created(0, day - 1).stop), max(1, round(self.initial / 10)))

    def created(self, first: int, last: int) -> range:
        """Return the rows that are created on these days, both included."""
        start = self.initial + (first - 1) * self.daily
        return range(max(0, start), self.initial + last * self.daily)

    def creation_day(self, number: int) -> int:
        return (number - self.initial) // self.daily + 1

    def created_at(self, number: int) -> str:
        """Return the creation time of a row: times are spread evenly over a day, never after the event."""
        return self.shop.time((number - self.initial + self.daily) * DAY_US // self.daily)

    def random(self, number: int, version: int | str, *limits: int) -> list[int]:
        """Return a number below each of `limits`, always the same ones for the same row and version."""
        key = f"{self.shop.seed}:{self.seed}:{number}:{version}".encode()
        pool = int.from_bytes(blake2b(key, digest_size=16).digest(), "big")
        values = []
        for limit in limits:
            pool, value = divmod(pool, limit)
            values.append(value)
        return values


def _first(size: int, after: int) -> int:
    """Return the first event of a day that is after a microsecond of it."""
    return bisect_right(range(size), after, key=lambda i: (i + 1) * DAY_US // size)
