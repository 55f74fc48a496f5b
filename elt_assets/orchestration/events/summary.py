"""The summary of a materialisation: how many rows there are, whether all is well, and what has changed.

It is the text that answers at a glance. Everything in it is from the other metadata of the event, and from
the event of the same table (or partition of it) before it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg

from elt_assets.lake.worker.blocks import parse_name
from elt_assets.orchestration.events.metadata import (
    GENERATION,
    ROW_COUNT,
    SCHEMA_CHANGES,
    figures_of,
    unwrap,
)
from elt_assets.orchestration.events.table_events import TableEvents
from elt_assets.pipeline.progress import SyncFigures

SUMMARY = "elt/summary"
POLICY = "elt/policy"
_MAX_FIELDS = 5
"""Maximum number of fields that the summary names."""


def summary_metadata(events: TableEvents, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of the summary of an event that is not logged yet.

    Args:
        events: the events of the table, or of its partition, before this one.
    """
    former = events.newest_materialization()
    lines = (
        summarize(metadata, None)
        if former is None
        else summarize(metadata, former.metadata, former.timestamp)
    )
    return {SUMMARY: dg.MetadataValue.md("\n".join(f"- {line}" for line in lines))}


def summarize(
    metadata: Mapping[str, Any], former: Mapping[str, Any] | None, timestamp: float = 0.0
) -> list[str]:
    """Return the lines of a summary.

    Args:
        metadata: the metadata of the event.
        former: the metadata of the event before it; None if it is the first one.
        timestamp: the time of that event, in seconds since 1970.
    """
    figures = figures_of(metadata)
    lines = [_describe_rows(metadata, former), _describe_health(metadata)]
    if former is None:
        return [*lines, "the first materialisation"]
    changes = list(_changes(metadata, former))
    if figures.committed:
        changes.insert(0, f"{_count(figures.committed, 'record')} committed")
    time = dt.datetime.fromtimestamp(timestamp, dt.timezone.utc)
    text = "; ".join(changes) or "nothing"
    return [*lines, f"changed since {time:%Y-%m-%d %H:%M} UTC: {text}"]


def _describe_rows(metadata: Mapping[str, Any], former: Mapping[str, Any] | None) -> str:
    rows = unwrap(metadata.get(ROW_COUNT))
    if rows is None:  # a table of another destination
        return f"**{_count(figures_of(metadata).committed, 'record')}** committed"
    before = None if former is None else unwrap(former.get(ROW_COUNT))
    growth = f" ({rows - before:+,})" if isinstance(before, int) and before != rows else ""
    return f"**{_count(rows, 'row')}**{growth}"


def _describe_health(metadata: Mapping[str, Any]) -> str:
    figures = figures_of(metadata)
    undeclared = sum(figures.undeclared.values())
    problems = [
        f"{_count(count, noun)} {text}"
        for count, noun, text in (
            (figures.rejected, "record", "rejected: see the dead letter"),
            (figures.changed, "record", f"with values that did not fit{_list_fields(figures)}"),
            (undeclared, "value", "of fields that the catalog does not declare"),
        )
        if count
    ]
    return "; ".join(problems) or "every record was stored as it came"


def _list_fields(figures: SyncFigures) -> str:
    """Return the fields with changed values, those of most records first."""
    most = sorted(figures.changed_fields.items(), key=lambda item: (-item[1], item[0]))
    fields = list(dict.fromkeys(parse_name(name).field for name, _ in most))
    rest = " …" if len(fields) > _MAX_FIELDS else ""
    return f" ({', '.join(fields[:_MAX_FIELDS])}{rest})" if fields else ""


def _changes(metadata: Mapping[str, Any], former: Mapping[str, Any]) -> Iterator[str]:
    yield from unwrap(metadata.get(SCHEMA_CHANGES)) or ()
    for key, name in ((POLICY, "policy"), (GENERATION, "generation")):
        value, before = unwrap(metadata.get(key)), unwrap(former.get(key))
        if before is not None and value != before:
            yield f"{name} {before} → {value}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
