"""`elt status`: shows the last sync of each stream, and its table."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

import click

from elt_assets.cli.assets import assets_of
from elt_assets.cli.output import FAILED, OK, Document, Output, connection_argument, subcommand
from elt_assets.cli.sync_report import list_losses
from elt_assets.connection import find_place, list_places
from elt_assets.errors import ConfigError
from elt_assets.orchestration.io_manager import project_lake
from elt_assets.orchestration.resources import open_instance
from elt_assets.orchestration.status import StreamStatus, stream_statuses
from elt_assets.pipeline.progress import SyncFigures

_WIDE = 110
"""Characters from which each count has a column of its own."""
_COUNTS = ("read", "committed", "rejected", "changed")
_UNITS = (("days", 86_400), ("h", 3_600), ("min", 60))
"""Units of time and their seconds; one is used from twice its size on."""


@subcommand(
    "status", "elt status", "elt status shop", "elt status shop --state", "elt status --json"
)
@connection_argument(required=False)
@click.option(
    "--state",
    "shows_state",
    is_flag=True,
    help="Show the policy, the acknowledged state and the path of each table.",
)
def command(out: Output, connection: str | None, shows_state: bool) -> int:
    """Show the last sync of each stream, and its table, for one connection or all.

    The exit code is 1 if a connection cannot be loaded, or a table cannot be read.
    """
    places = list_places() if connection is None else [find_place(connection)]
    answers: list[Document] = []
    has_failed = False
    for place in places:
        if connection is None:
            out.line(f"{place.name}:")
        try:
            with open_instance() as instance:
                statuses = stream_statuses(assets_of(place), project_lake(), instance)
        except ConfigError as error:
            if connection is not None:
                raise
            out.warn(str(error))
            has_failed = True
            continue
        _print(statuses, out, shows_state=shows_state)
        has_failed |= any(status.error is not None for status in statuses)
        streams = [_document(status) for status in statuses]
        answers.append({"connection": place.name, "streams": streams})
    out.document(answers[0] if connection is not None else {"connections": answers})
    return FAILED if has_failed else OK


def _print(statuses: Sequence[StreamStatus], out: Output, *, shows_state: bool) -> None:
    is_wide = out.width >= _WIDE
    counts = _COUNTS if is_wide else ("committed",)
    is_elsewhere = any(status.table and status.table.is_elsewhere for status in statuses)
    rows_name = "rows delivered" if is_elsewhere else "rows"
    columns = ["stream", "last sync", "result", *counts, rows_name]
    out.table(columns, [_row(status, counts, is_wide=is_wide) for status in statuses])
    for status in statuses:
        failure = status.sync.failure
        if failure is not None:
            text = f"{status.stream}: {_describe_time(failure.time)}: {failure.message}"
            out.verdict("failed", text, good=False)
        if status.error is not None:
            out.warn(f"{status.stream}: the table cannot be read: {status.error}")
        published = None if status.table is None else status.table.published
        if published is not None and published.problem is not None:
            out.warn(f"{status.stream}: Iceberg: {published.problem}")
    if shows_state:
        names = ["stream", "policy", "acknowledged state", "path"]
        tables = [(s.table.state or "-", s.table.path) if s.table else "--" for s in statuses]
        rows = [(s.stream, s.policy, *table) for s, table in zip(statuses, tables, strict=True)]
        out.table(names, rows)


def _row(status: StreamStatus, counts: Sequence[str], *, is_wide: bool) -> Sequence[object]:
    figures = status.sync.figures
    numbers = [getattr(figures, name) if figures else "-" for name in counts]
    result = ", ".join(_describe_result(status, is_wide=is_wide))
    last = "-" if status.complete is None else _describe_time(status.complete)
    table = status.table
    if table is None:
        rows: object = "not readable"
    elif not table.exists and status.complete is not None:
        rows = "no table"
    else:
        rows = table.rows
    return (status.stream, last, result, *numbers, rows)


def _describe_result(status: StreamStatus, *, is_wide: bool) -> Iterator[str]:
    yield status.result
    if status.failed_checks:
        number = len(status.failed_checks)
        yield f"{number} failed check{'s' if number > 1 else ''}"
    if status.partitions is not None:
        parts = status.partitions
        yield f"{parts['complete']:,} of {parts['all']:,} partitions"
        yield from (f"{parts[name]:,} {name}" for name in ("failed", "running") if parts[name])
    published = None if status.table is None else status.table.published
    if published is not None and published.lag:
        yield f"Iceberg {published.lag:,} versions behind"
    figures = status.sync.figures or SyncFigures()
    if not is_wide:
        losses = {name: getattr(figures, name) for name in ("rejected", "changed")}
        yield from (f"{number:,} {name}" for name, number in losses.items() if number)


def _describe_time(time: dt.datetime) -> str:
    seconds = _seconds_since(time)
    unit, size = next((unit for unit in _UNITS if seconds >= 2 * unit[1]), ("s", 1))
    return f"{time:%Y-%m-%d %H:%M} UTC ({seconds // size:,} {unit} ago)"


def _seconds_since(time: dt.datetime) -> int:
    return max(0, round((dt.datetime.now(dt.timezone.utc) - time).total_seconds()))


def _document(status: StreamStatus) -> Document:
    table, sync, failure = status.table, status.sync, status.sync.failure
    last = status.complete
    return {
        "stream": status.stream,
        "policy": status.policy,
        "result": status.result,
        "last_sync": None if last is None else last.isoformat(timespec="seconds"),
        "seconds_ago": None if last is None else _seconds_since(last),
        "run_id": sync.run_id,
        "last_failure": None
        if failure is None
        else {
            "time": failure.time.isoformat(timespec="seconds"),
            "seconds_ago": _seconds_since(failure.time),
            "run_id": failure.run_id,
            "message": failure.message,
        },
        "failed_checks": [asdict(check) for check in status.failed_checks],
        "figures": None
        if sync.figures is None
        else {**asdict(sync.figures), **list_losses(sync.figures)},
        "partitions": status.partitions,
        "rows": None if table is None else table.rows,
        "state": None if table is None or table.state is None else json.loads(table.state),
        "path": None if table is None else table.path,
        "has_table": table is not None and table.exists,
        "iceberg": None if table is None or table.published is None else asdict(table.published),
        "error": None if status.error is None else status.error.message,
    }
