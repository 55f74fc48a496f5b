"""What of a stream needs a person, how much, and the next step: the rules of `elt status` and of the alerts.

`status` asks for the concerns of each stream. They are in the order of `KINDS`, the most pressing first; the
first one is the state of the stream. A stream without any is fine, and so is one with warnings alone.

**Far above its own history** is said of a number of the last sync that is more than three times the most of
all days before, if there were syncs on five days or more, and if it is large enough to matter. So a stream
that grows day by day is never named, nor is one that is large each Monday, and no limit has to be set.

Tests: `tests/orchestration/test_attention.py`, and `tests/cli/test_status_overview.py` for the steps.
"""

from __future__ import annotations

import datetime as dt
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from elt_assets.errors import EltError
from elt_assets.orchestration import health
from elt_assets.orchestration.days import summarize_sync
from elt_assets.orchestration.due import DueRule
from elt_assets.orchestration.last_syncs import LastSync, StoredCheck
from elt_assets.pipeline.publication import PublishedState

Kind = Literal[
    "failed",
    "unreadable",
    "stale",
    "check",
    "unpublished",
    "rejecting",
    "lagging",
    "growing",
    "never",
    "unknown",
    "warning",
]
KINDS: Mapping[Kind, str] = {
    "failed": "failed",
    "unreadable": "with a table that cannot be read",
    "stale": "stale",
    "check": "with failed checks",
    "unpublished": "behind in Iceberg",
    "rejecting": "that reject more records than before",
    "lagging": "that lag behind the source",
    "growing": "far above their history",
    "never": "never synced",
    "unknown": "without an event",
    "warning": "with warnings",
}
"""The kinds of concerns, the most pressing first, with what the summary calls the streams that have one."""
NO_NEED: Kind = "warning"
"""The kind of concern that needs no person now."""
FACTOR, MIN_DAYS = 3, 5
"""How many times the most of all days before is far above it; and how many days with syncs there must be."""
_MAINTENANCE = (
    "run the job elt_maintenance, or set maintenance_schedule in [tool.elt]: "
    '{default_status = "running"}'
)
_CHECK_STEPS = {
    "rejected": "elt replay {}",
    "published": "elt publish {}",
    "columns": "elt discover {connection} --dry-run",
    "contract": "elt discover {connection} --dry-run",
}
"""The next steps after failed checks, if another sync is not the next step."""


@dataclass(frozen=True)
class Concern:
    """Something about a stream that a person should know.

    `text`: what it is. `next_step`: a command, or a setting. `cause`: equal for streams of a connection that
    share it.
    """

    kind: Kind
    text: str
    next_step: str
    cause: str


@dataclass(frozen=True)
class StreamFacts:
    """What the rules look at. `words`: connection and stream, as commands take them."""

    words: tuple[str, str]
    sync: LastSync
    is_enabled: bool
    rule: DueRule | None
    failed_checks: Sequence[StoredCheck] = ()
    failed_partition: str | None = None
    is_unknown: bool = False  # the table was synced, and Dagster has no event
    published: PublishedState | None = None
    error: EltError | None = None
    schedule_off: str | None = None  # the name of the schedule, if it is off in Dagster

    @property
    def command(self) -> str:
        return shlex.join(self.words)


def find_concerns(facts: StreamFacts, time: dt.datetime) -> list[Concern]:
    """Return what of a stream needs a person, the most pressing first. `time`: the present."""
    concerns = [
        *_find_failure(facts),
        *_find_staleness(facts, time),
        *_find_failed_checks(facts),
        *_find_publication(facts),
        *_find_growth(facts),
        *_find_absence(facts),
    ]
    order = list(KINDS)
    return sorted(concerns, key=lambda concern: order.index(concern.kind))


def _find_failure(facts: StreamFacts) -> Iterator[Concern]:
    failure, sync = facts.sync.failure, f"elt sync {facts.command}"
    if failure is not None:
        partition = facts.failed_partition
        more = "" if partition is None else f" --partition {shlex.quote(partition)}"
        yield Concern("failed", failure.message, f"{sync}{more}", failure.message)
    if facts.error is not None:
        text = f"the table cannot be read: {facts.error.message}"
        step = facts.error.guidance or f"elt status {facts.words[0]} --verbose"
        yield Concern("unreadable", text, step, "table")


def is_stale(facts: StreamFacts, time: dt.datetime) -> bool | None:
    """Return whether a stream is stale; None if it is not said when it is to be synced, or it never was."""
    sync, rule = facts.sync, facts.rule
    if rule is None or sync.complete is None:
        return None
    seconds = max((day.seconds for day in sync.days.values()), default=0.0)
    deadline = rule.find_deadline(time, seconds=seconds, is_running=sync.result == "running")
    return sync.complete < deadline


def _find_staleness(facts: StreamFacts, time: dt.datetime) -> Iterator[Concern]:
    if is_stale(facts, time):
        assert facts.rule is not None
        off = facts.schedule_off
        text = facts.rule.text + ("" if off is None else f"; {off} is off in Dagster: turn it on")
        yield Concern("stale", text, f"elt sync {facts.command}", facts.rule.text)


def _find_failed_checks(facts: StreamFacts) -> Iterator[Concern]:
    for kind, is_error in (("check", True), ("warning", False)):
        names = [check.check for check in facts.failed_checks if check.is_error is is_error]
        if names:
            noun = "checks failed" if len(names) > 1 else "check failed"
            text = f"{noun}: {', '.join(names)}"
            yield Concern(kind, text, _check_step(facts, names), text)  # type: ignore[arg-type]


def _check_step(facts: StreamFacts, names: Sequence[str]) -> str:
    if set(names) <= health.DESCRIPTIONS.keys():
        return _MAINTENANCE
    step = next((_CHECK_STEPS[name] for name in names if name in _CHECK_STEPS), "elt sync {}")
    return step.format(facts.command, connection=shlex.quote(facts.words[0]))


def _find_publication(facts: StreamFacts) -> Iterator[Concern]:
    state = facts.published
    if state is None or not (state.lag or state.problem):
        return
    behind = f"Iceberg is {state.lag:,} versions behind" if state.lag else "Iceberg"
    text = f"{behind}: {state.problem}" if state.problem else behind
    step = f"elt publish {facts.command}"
    yield Concern("unpublished", text, step, state.problem or "behind")


@dataclass(frozen=True)
class _Figure:
    """A number that is compared with its history; below `floor` it does not matter."""

    name: str
    attribute: str
    kind: Kind
    floor: float
    unit: str = ""


_FIGURES = (
    _Figure("rejected records", "rejected", "rejecting", 1),
    _Figure("time from the source to the lake", "lag", "lagging", 300, " s"),
    _Figure("rows", "rows", "growing", 10_000),
    _Figure("duration of a sync", "seconds", "growing", 60, " s"),
    _Figure("bytes of the table", "size", "growing", 100_000_000),
)


def is_far_above(value: float | None, before: Sequence[float | None], floor: float) -> bool:
    """Return whether a number is far above those of the days before; one that is not known is not."""
    numbers = [number for number in before if number is not None]
    if value is None or value < floor or len(numbers) < MIN_DAYS:
        return False
    return value > FACTOR * max(numbers)


def _find_growth(facts: StreamFacts) -> Iterator[Concern]:
    """Compare the last sync with the days before it."""
    if facts.sync.complete is None:
        return
    last, date = summarize_sync(facts.sync.metadata), facts.sync.complete.date().isoformat()
    before = [day for name, day in facts.sync.days.items() if name != date]
    for figure in _FIGURES:
        values = [getattr(day, figure.attribute) for day in before]
        value = getattr(last, figure.attribute)
        if is_far_above(value, values, figure.floor):
            most = max(number for number in values if number is not None)
            text = (
                f"{figure.name}: {value:,.0f}{figure.unit}; at most {most:,.0f}{figure.unit} on the "
                f"{len(before)} days before"
            )
            yield Concern(figure.kind, text, _growth_step(facts, figure), figure.name)


def _growth_step(facts: StreamFacts, figure: _Figure) -> str:
    if figure.kind == "rejecting":
        return f"elt replay {facts.command}"
    if figure.kind == "lagging":
        return f"elt sync {facts.command}, or set a `schedule` that is more frequent"
    return f"elt preview {facts.command}, or set the check `row_count: {{max: …}}`"


def _find_absence(facts: StreamFacts) -> Iterator[Concern]:
    sync, step = facts.sync, f"elt sync {facts.command}"
    if facts.is_unknown:
        text = "the table was synced, and Dagster has no event of it"
        yield Concern("unknown", text, step, "unknown")
    elif sync.result == "never" and facts.is_enabled:
        off = facts.schedule_off
        more = "" if off is None else f"; {off} is off in Dagster: turn it on"
        yield Concern("never", f"never synced{more}", step, "never")
