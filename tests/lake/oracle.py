"""The contents that a stream's tables must have, in plain Python: rows, dead letter and state move together.

One `Part` is what one writer (the stream, or one partition of it) has acknowledged. It is never changed:
each commit makes another, so that a version of the table and what belongs to it can be kept side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from elt_assets.protocol.catalog import APPEND, APPEND_DEDUP, OVERWRITE, OVERWRITE_DEDUP


@dataclass(frozen=True)
class Event:
    """A record; `text` is unique. Without `at` it is a line that is no JSON object."""

    text: str
    id: int | None = None
    at: int | None = None
    more: str | None = None
    deleted: bool = False

    @property
    def is_readable(self) -> bool:
        return self.at is not None


@dataclass(frozen=True)
class Building:
    """A refresh that is not complete. `made_by`: what its rows are made by; `rows`, `dead`: its own."""

    truncates: bool
    made_by: object
    rows: tuple[Event, ...]
    dead: tuple[Event, ...]
    state: str


@dataclass(frozen=True)
class Part:
    """The data that one writer has acknowledged. `refresh`: the last one that was requested, by its run."""

    rows: tuple[Event, ...] = ()
    buried: tuple[Event, ...] = ()
    dead: tuple[Event, ...] = ()
    state: str | None = None
    building: Building | None = None
    refresh: object = None


@dataclass(frozen=True)
class Stream:
    """The configuration of a stream: that of all its runs, or of one."""

    policy: str
    incremental: bool
    key: str | None
    catalog: int = 0

    @property
    def deduplicates(self) -> bool:
        return self.policy in (APPEND_DEDUP, OVERWRITE_DEDUP)

    @property
    def overwrites(self) -> bool:
        return self.policy in (OVERWRITE, OVERWRITE_DEDUP)

    def rejects(self, event: Event) -> bool:
        return not event.is_readable or (
            self.key is not None and self.deduplicates and getattr(event, self.key) is None
        )


@dataclass
class Run:
    """A sync that is under way: what it is to go on from, and what a commit of it does."""

    stream: Stream
    begins_at: Part
    refresh: str = "none"
    intent: object = None
    continues: bool = field(init=False)
    truncates: bool = field(init=False)
    start: str | None = field(init=False)
    building: Building | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        part, found = self.begins_at, self.begins_at.building
        is_like = found is not None and found.truncates and found.made_by == self.stream
        goes_on = is_like or (
            found is not None and not found.truncates and not self.stream.overwrites
        )
        mode, has_cursor = self.refresh, self.stream.incremental and not self.stream.overwrites
        if mode != "none" and part.refresh == self.intent and (has_cursor or goes_on):
            mode = "none"  # a retry goes on with what the first attempt began, but cannot in a whole read
        self.continues = mode == "none" and goes_on
        restarts = mode == "none" and found is not None and found.truncates and not is_like
        is_same_policy = restarts and found is not None and self._has_same_policy(found)
        begins = self.stream.overwrites or mode == "truncate" or is_same_policy
        if self.continues:
            assert found is not None
            self.truncates, self.start, self.building = found.truncates, found.state, found
        else:
            self.truncates = begins
            is_fresh = begins or mode == "retain" or not self.stream.incremental
            self.start = None if is_fresh else part.state

    def _has_same_policy(self, found: Building) -> bool:
        assert isinstance(found.made_by, Stream)
        return found.made_by.policy == self.stream.policy

    def after(self, part: Part, events: Sequence[Event], state: str, *, final: bool) -> Part:
        """Return what is acknowledged once a checkpoint is committed."""
        dead = tuple(event for event in events if self.stream.rejects(event))
        news = [event for event in events if not self.stream.rejects(event)]
        refresh = self.intent if self.refresh != "none" else part.refresh
        part = replace(part, dead=(*part.dead, *dead), refresh=refresh)
        if not self.truncates:
            rows, buried = landed(self.stream, part.rows, part.buried, news)
            part = replace(part, rows=rows, buried=buried, state=state, building=None)
            if not self.stream.incremental and not final:
                part = replace(part, building=Building(False, self.stream, (), (), state))
            return part
        was = self.building or Building(True, self.stream, (), (), state)
        built = (*was.rows, *news)
        now = Building(True, self.stream, built, (*was.dead, *dead), state)
        self.building = now
        if not final:
            return replace(part, building=now)
        rows, buried = landed(self.stream, (), (), built)
        self.truncates = False
        return replace(part, rows=rows, buried=buried, dead=now.dead, state=state, building=None)


def landed(
    stream: Stream, rows: Sequence[Event], buried: Sequence[Event], news: Sequence[Event]
) -> tuple[tuple[Event, ...], tuple[Event, ...]]:
    """The rows of a table, and its deleted keys, once a batch has landed."""
    if not stream.deduplicates:
        return (*rows, *news), tuple(buried)
    if not news:
        return tuple(rows), tuple(buried)
    assert stream.key is not None
    latest: dict[object, Event] = {}
    for event in (*rows, *buried, *news):
        key = getattr(event, stream.key)
        key = event.text if key is None else (stream.key, key)
        if key not in latest or (event.at or 0) >= (latest[key].at or 0):
            latest[key] = event
    found = latest.values()
    return (
        tuple(event for event in found if not event.deleted),
        tuple(event for event in found if event.deleted),
    )


POLICIES = (APPEND, APPEND_DEDUP, OVERWRITE, OVERWRITE_DEDUP)
