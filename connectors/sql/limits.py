"""Limits on what a source asks of its server, for all its processes, and its tasks on executors, together.

**Connections.** Runs and tasks on several machines have only the server in common. So a connection that reads
rows takes one of `connections` numbered locks of the server, and keeps it until it ends. One that finds none
free ends, and tries again: the server never has more of them that read. A process that is killed loses its
connection, and the lock with it. Nobody who has a lock waits for another one, so none waits for ever.

**Rows.** Each of these connections reads its part of `rows_per_second`, which is the same for each. So all
together read no more, also if they know nothing of each other.

**Hours.** A read of a whole table begins a slice only within `hours`. Outside it ends at the last slice that
is committed, with an error that names the hours: a read that waited for hours would keep a snapshot, and with
it all rows that the server may remove. The next run within the hours goes on from there. A comparison has no
such point: it begins only within the hours, and the server ends it at their end.

**Statements.** The server itself ends a query of rows that takes longer than `statement_seconds`.

The reads of a log have no limits but those of its window: it must be read before the server removes it.

Tests: `tests/connectors/sql/test_limits.py`, and on servers `tests/connectors/postgres/test_limits.py` and
`tests/connectors/mysql/test_limits.py`
"""

from __future__ import annotations

import datetime as dt
import math
import random
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from connectors.sdk.stopping import pause
from elt_assets.errors import ConfigError, EltError, TransientError

_PAUSES = (0.1, 1.0)
"""Seconds after which a connection is tried for again: the least and the most."""
_TIME = r"(?:[01]\d|2[0-3]):[0-5]\d"
Session = TypeVar("Session")


class Rows(Protocol):
    """Rows of which a part can be taken, as a batch of Arrow."""

    def __len__(self) -> int: ...

    def slice(self, offset: int, length: int) -> Any: ...


class ReadLimits(BaseModel):
    """What a source asks of its server at most."""

    model_config = ConfigDict(extra="forbid", title="Limits")

    connections: int | None = Field(
        default=None,
        title="Connections that read rows at the same time",
        description="Of all streams, runs and executors that log in as the same user",
        ge=1,
        le=1000,
    )
    rows_per_second: int | None = Field(
        default=None,
        title="Rows that are read in a second",
        description="By all connections together: each of `connections`, by default one, reads a part",
        ge=1,
    )
    hours: str | None = Field(
        default=None,
        title="Hours in which whole tables are read and compared, such as 22:00-06:00",
        pattern=f"^{_TIME}-{_TIME}$",
    )
    timezone: str = Field(default="UTC", title="Time zone of `hours`, such as Europe/Berlin")
    statement_seconds: int | None = Field(
        default=None,
        title="Seconds after which the server ends a query of rows",
        ge=1,
        le=2_000_000,
    )

    @field_validator("timezone")
    @classmethod
    def _check_timezone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (KeyError, ValueError, OSError):
            raise ValueError("it is no time zone, such as Europe/Berlin") from None
        return value

    @model_validator(mode="after")
    def _check_parts(self) -> ReadLimits:
        if self.hours is not None and self.hours[:5] == self.hours[6:]:
            raise ValueError("hours ends when it begins: remove it to read at any time")
        if (self.rows_per_second or self.readers or 1) < (self.readers or 1):
            raise ValueError("rows_per_second is less than one row for each of connections")
        return self

    @property
    def readers(self) -> int | None:
        """How many connections read rows at the same time; None for any number."""
        return self.connections or (1 if self.rows_per_second else None)

    def seconds_left(self, moment: dt.datetime | None = None) -> float | None:
        """Return how long whole tables may be read from a moment on, by default the present one: 0 outside of
        the hours, None without end."""
        if self.hours is None:
            return None
        clock = (moment or dt.datetime.now(dt.timezone.utc)).astimezone(ZoneInfo(self.timezone))
        begin, end = (
            dt.timedelta(hours=int(text[:2]), minutes=int(text[3:]))
            for text in self.hours.split("-")
        )
        # By the clock on the wall: on a day whose clocks change, the hours are longer or shorter.
        since = dt.timedelta(
            hours=clock.hour,
            minutes=clock.minute,
            seconds=clock.second,
            microseconds=clock.microsecond,
        )
        day = dt.timedelta(days=1)
        if (since - begin) % day >= (end - begin) % day:
            return 0.0
        return ((end - since) % day).total_seconds()

    def require_hours(self, purpose: str) -> None:
        """Check that a whole table may be read now.

        Args:
            purpose: what is to be read.

        Raises:
            TransientError: it is outside of the hours.
        """
        if self.seconds_left() == 0:
            raise self._make_hours_error(purpose)

    def _make_hours_error(self, purpose: str) -> TransientError:
        return TransientError(
            f"{purpose}: whole tables are read and compared only within `limits.hours` ({self.hours} "
            f"{self.timezone})",
            guidance="run it again within these hours: a read goes on from its last state; or change "
            "`limits.hours`",
        )

    def limit_statements(
        self, advice: str, *, ends_with_hours: bool = False
    ) -> StatementLimit | None:
        """Return how long a query of rows may take; None without end.

        Args:
            advice: what makes a query shorter.
            ends_with_hours: whether it must end with the hours, too.
        """
        left = self.seconds_left() if ends_with_hours else None
        if left is not None and (self.statement_seconds is None or left < self.statement_seconds):
            return StatementLimit(max(left, 0.001), self._make_hours_error)
        if self.statement_seconds is None:
            return None
        seconds = self.statement_seconds

        def make_error(purpose: str) -> ConfigError:
            return ConfigError(
                f"{purpose}: the server has ended a query, which took longer than "
                f"`limits.statement_seconds` ({seconds} s)",
                guidance=f"raise `limits.statement_seconds`, or {advice}",
            )

        return StatementLimit(seconds, make_error)

    @contextmanager
    def open_reader(
        self,
        open_session: Callable[[], AbstractContextManager[Session]],
        take_lock: Callable[[Session, int], bool],
        check: Callable[[], object] = lambda: None,
    ) -> Iterator[Session]:
        """Open a connection that reads rows, as soon as there are fewer than may do so.

        Args:
            open_session: opens the connection.
            take_lock: takes one of so many locks for a connection, and returns whether one was free.
            check: called before each attempt.

        Raises:
            EltError: the server cannot be reached.
        """
        while True:
            check()
            with open_session() as session:
                if self.readers is None or take_lock(session, self.readers):
                    yield session
                    return
            pause(random.uniform(*_PAUSES))

    def make_pace(self) -> Pace:
        """Return the pace of one connection that reads rows."""
        if self.rows_per_second is None:
            return Pace(math.inf)
        return Pace(self.rows_per_second / (self.readers or 1))

    def pace(self, batches: Iterable[Rows]) -> Iterator[Any]:
        """Yield batches as fast as one connection may read rows, in parts of about a second."""
        pace = self.make_pace()
        for batch in batches:
            most = max(1, len(batch) if math.isinf(pace.rate) else int(pace.rate))
            for start in range(0, len(batch), most):
                part = batch.slice(start, most)
                yield part
                pace.spend(len(part))


class Pace:
    """So many rows a second. What was waited for is not caught up: a server that was slow is not hurried."""

    def __init__(self, rate: float):
        self.rate = rate
        self._due = time.monotonic()

    def spend(self, rows: int) -> None:
        """Wait until more rows may be read than these."""
        clock = time.monotonic()
        self._due = max(self._due, clock - 1) + rows / self.rate
        if self._due > clock:
            pause(self._due - clock)


@dataclass(frozen=True)
class StatementLimit:
    """How long a query may take, and the error if the server ends it. It takes what is to be read."""

    seconds: float
    make_error: Callable[[str], EltError]

    @property
    def milliseconds(self) -> int:
        """The time as servers take it, at least 1."""
        return max(1, round(self.seconds * 1000))
