"""What `elt status` says to people: a summary, a table of the streams, and the next step for each need.

Streams that need a person come first, the most pressing ones at the top. Those with the same concern of the
same cause share one paragraph, so that a source that is down is one sentence, and not one for each stream.
"""

from __future__ import annotations

import datetime as dt
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence

from elt_assets.cli.output import Output
from elt_assets.orchestration.attention import KINDS, NO_NEED, Concern
from elt_assets.orchestration.status import StreamStatus
from elt_assets.pipeline.progress import SyncFigures

_WIDE = 110
"""Characters from which each count has a column of its own."""
_COUNTS = ("read", "committed", "rejected", "changed")
_UNITS = (("days", 86_400), ("h", 3_600), ("min", 60))
"""Units of time and their seconds; one is used from twice its size on."""
_MAX_NAMES = 5
"""Number of streams with one concern that are named."""
_WORDS = {"never": "never synced", "unknown": "unknown", "check": "failed check"}
"""What a paragraph begins with, if it is not the kind of the concern."""


def sort_by_need(statuses: Sequence[StreamStatus]) -> list[StreamStatus]:
    """Return streams in the order in which they need a person; the order of others stays."""
    order = [*KINDS, None]
    return sorted(statuses, key=lambda status: order.index(status.state))


def count_states(statuses: Sequence[StreamStatus]) -> tuple[int, dict[str, int]]:
    """Return how many streams need nobody, and how many have each most pressing concern."""
    counts = Counter(status.state for status in statuses if status.state is not None)
    fine = sum(not status.needs_person for status in statuses)
    return fine, {kind: counts[kind] for kind in KINDS if counts[kind]}


def describe_summary(statuses: Sequence[StreamStatus]) -> str:
    """Return how many streams are fine, how many need a person, and why."""
    fine, counts = count_states(statuses)
    needs = {kind: number for kind, number in counts.items() if kind != NO_NEED}
    noun = "stream" if len(statuses) == 1 else "streams"
    parts = [f"{len(statuses):,} {noun}: {fine:,} fine"]
    if counts.get(NO_NEED):
        parts.append(f" ({counts[NO_NEED]:,} {KINDS[NO_NEED]})")
    if needs:
        reasons = ", ".join(f"{number:,} {KINDS[kind]}" for kind, number in needs.items())  # type: ignore[index]
        verb = "needs" if sum(needs.values()) == 1 else "need"
        parts.append(f"; {sum(needs.values()):,} {verb} a person: {reasons}")
    return "".join(parts)


def print_statuses(
    selected: Sequence[StreamStatus],
    statuses: Sequence[StreamStatus],
    out: Output,
    *,
    names_connections: bool,
) -> None:
    """Print the summary of all streams, the table of those that are selected, and what they need."""
    for line in _wrap(describe_summary(statuses), out.width):
        out.line(line)
    is_wide = out.width >= _WIDE
    counts = _COUNTS if is_wide else ("committed",)
    is_elsewhere = any(status.table and status.table.is_elsewhere for status in selected)
    rows_name = "rows delivered" if is_elsewhere else "rows"
    columns = ["stream", "last sync", "result", *counts, rows_name]
    selected = sort_by_need(selected)
    if selected:
        rows = [
            (
                _name(status, names_connections=names_connections),
                *_row(status, counts, is_wide=is_wide),
            )
            for status in selected
        ]
        out.table(columns, rows)
    for concern, streams in _group(selected):
        _print_concern(concern, streams, out, names_connections=names_connections)
    for status in selected:
        name = _name(status, names_connections=names_connections)
        if status.error is not None:
            out.warn(f"{name}: the table cannot be read: {status.error}")
        published = None if status.table is None else status.table.published
        if published is not None and published.problem is not None:
            out.warn(f"{name}: Iceberg: {published.problem}")


def print_tables(selected: Sequence[StreamStatus], out: Output, *, names_connections: bool) -> None:
    """Print the policy, the acknowledged state and the path of the table of each stream."""
    rows = [
        (
            _name(status, names_connections=names_connections),
            status.policy,
            *((table.state or "-", table.path) if (table := status.table) else ("-", "-")),
        )
        for status in sort_by_need(selected)
    ]
    out.table(["stream", "policy", "acknowledged state", "path"], rows)


def _group(statuses: Sequence[StreamStatus]) -> Iterator[tuple[Concern, list[StreamStatus]]]:
    """Yield the concerns with the streams that share them, the most pressing ones first."""
    groups: dict[tuple[str, str, str], tuple[Concern, list[StreamStatus]]] = {}
    for status in statuses:
        for concern in status.concerns:
            key = concern.kind, status.connection, concern.cause
            groups.setdefault(key, (concern, []))[1].append(status)
    order = list(KINDS)
    yield from sorted(groups.values(), key=lambda group: order.index(group[0].kind))


def _print_concern(
    concern: Concern, statuses: Sequence[StreamStatus], out: Output, *, names_connections: bool
) -> None:
    names = [_name(status, names_connections=names_connections) for status in statuses]
    more = f" and {len(names) - _MAX_NAMES:,} more" if len(names) > _MAX_NAMES else ""
    failure = statuses[0].sync.failure
    time = f"{describe_time(failure.time)}: " if failure and concern.kind == "failed" else ""
    word = _WORDS.get(concern.kind, concern.kind)
    text = f"{', '.join(names[:_MAX_NAMES])}{more}: {time}{concern.text}"
    first, *others = _wrap(text, out.width - len(word) - 1)
    out.verdict(word, first, good=concern.kind == NO_NEED)
    for line in _wrap(" ".join(others), out.width - 2):
        out.line(f"  {line}")
    step = concern.next_step + (" (and so on)" if len(names) > 1 else "")
    for line in _wrap(f"next: {step}", out.width - 2):
        out.line(f"  {line}")


def _wrap(text: str, width: int) -> list[str]:
    """Return the lines of a text; no word of it, such as a name or a command's option, is broken."""
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def _name(status: StreamStatus, *, names_connections: bool) -> str:
    return f"{status.connection}/{status.stream}" if names_connections else status.stream


def _row(status: StreamStatus, counts: Sequence[str], *, is_wide: bool) -> Sequence[object]:
    figures = status.sync.figures
    numbers = [getattr(figures, name) if figures else "-" for name in counts]
    result = ", ".join(_describe_result(status, is_wide=is_wide))
    last = "-" if status.complete is None else describe_time(status.complete)
    table = status.table
    if table is None:
        rows: object = "not readable"
    elif not table.exists and status.complete is not None:
        rows = "no table"
    else:
        rows = table.rows
    return (last, result, *numbers, rows)


def _describe_result(status: StreamStatus, *, is_wide: bool) -> Iterator[str]:
    yield status.result
    if status.stale:
        yield "stale"
    if status.failed_checks:
        number = len(status.failed_checks)
        yield f"{number} failed check{'s' if number > 1 else ''}"
    if status.partitions is not None:
        parts = status.partitions
        yield f"{parts.complete:,} of {parts.all:,} partitions"
        named = {"failed": parts.failed, "running": parts.running}
        yield from (f"{number:,} {name}" for name, number in named.items() if number)
    published = None if status.table is None else status.table.published
    if published is not None and published.lag:
        yield f"Iceberg {published.lag:,} versions behind"
    if status.lag is not None:
        yield f"{describe_seconds(status.lag)} behind the source"
    figures = status.sync.figures or SyncFigures()
    if not is_wide:
        losses = {name: getattr(figures, name) for name in ("rejected", "changed")}
        yield from (f"{number:,} {name}" for name, number in losses.items() if number)


def describe_time(time: dt.datetime) -> str:
    """Return a time, and how long ago it was."""
    return f"{time:%Y-%m-%d %H:%M} UTC ({describe_seconds(seconds_since(time))} ago)"


def describe_seconds(seconds: float) -> str:
    """Return a duration in its unit."""
    unit, size = next((unit for unit in _UNITS if seconds >= 2 * unit[1]), ("s", 1))
    return f"{int(seconds) // size:,} {unit}"


def seconds_since(time: dt.datetime) -> int:
    """Return the whole seconds since a time."""
    return max(0, round((dt.datetime.now(dt.timezone.utc) - time).total_seconds()))
