"""`elt status`: shows how streams stand, those first that need a person, and the next step for each."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import click

from elt_assets.cli.assets import assets_of
from elt_assets.cli.output import FAILED, OK, Document, Output, connection_argument, subcommand
from elt_assets.cli.status_page import render_page
from elt_assets.cli.status_report import (
    count_states,
    print_statuses,
    print_tables,
    seconds_since,
    sort_by_need,
)
from elt_assets.cli.sync_report import list_losses
from elt_assets.connection import find_place, list_places
from elt_assets.errors import ConfigError
from elt_assets.orchestration.io_manager import project_lake
from elt_assets.orchestration.resources import open_instance
from elt_assets.orchestration.status import StreamStatus, stream_statuses
from elt_assets.orchestration.streams import StreamAsset

_FAILED_STATES = {"failed", "unreadable", "check"}


@subcommand(
    "status",
    "elt status",
    "elt status shop",
    "elt status shop --state",
    "elt status --failed --stale",
    "elt status --html status.html",
    "elt status --json",
)
@connection_argument(required=False)
@click.option(
    "--state",
    "shows_state",
    is_flag=True,
    help="Show the policy, the acknowledged state and the path of each table.",
)
@click.option(
    "--failed",
    "only_failed",
    is_flag=True,
    help="Show only streams whose newest run or a check of severity ERROR failed, or whose table cannot be "
    "read. The exit code is 1 if there is one.",
)
@click.option(
    "--stale",
    "only_stale",
    is_flag=True,
    help="Show only streams that are not as fresh as their `freshness` or `schedule` says. The exit code is "
    "1 if there is one.",
)
@click.option(
    "--html",
    "page",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also write a page with a line and plots for each stream, which needs no server.",
)
def command(
    out: Output,
    connection: str | None,
    shows_state: bool,
    only_failed: bool,
    only_stale: bool,
    page: Path | None,
) -> int:
    """Show how each stream stands, of one connection or of all: those that need a person come first.

    The exit code is 1 if a connection cannot be loaded, or a table cannot be read.
    """
    places = list_places() if connection is None else [find_place(connection)]
    loaded: dict[str, list[StreamAsset]] = {}
    broken: dict[str, ConfigError] = {}
    for place in places:
        try:
            loaded[place.name] = assets_of(place)
        except ConfigError as error:  # noqa: PERF203 - the others are shown
            if connection is not None:
                raise
            broken[place.name] = error
    assets = [asset for group in loaded.values() for asset in group]
    with open_instance() as instance:
        statuses = stream_statuses(assets, project_lake(), instance)
    for problem in broken.values():
        out.warn(str(problem))
    has_failed = bool(broken) or any(status.error is not None for status in statuses)
    if page is not None:
        _write_page(page, statuses, broken)
        out.note(f"wrote {page}")
    selected = statuses
    if only_failed or only_stale:
        selected = [
            status
            for status in statuses
            if (only_stale and status.stale) or (only_failed and _is_failed(status))
        ]
        has_failed |= bool(selected)
    print_statuses(selected, statuses, out, names_connections=connection is None)
    if shows_state:
        print_tables(selected, out, names_connections=connection is None)
    out.document(_answer(connection, list(loaded), selected, statuses))
    return FAILED if has_failed else OK


def _is_failed(status: StreamStatus) -> bool:
    return any(concern.kind in _FAILED_STATES for concern in status.concerns)


def _write_page(
    path: Path, statuses: Sequence[StreamStatus], broken: Mapping[str, ConfigError]
) -> None:
    """Write the page.

    Raises:
        ConfigError: the file cannot be written.
    """
    text = render_page(sort_by_need(statuses), {name: str(e) for name, e in broken.items()})
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"--html: {path} cannot be written: {error.strerror}",
            guidance="name a file in a folder that exists and that you may write to",
        ) from error


def _answer(
    connection: str | None,
    loaded: Sequence[str],
    selected: Sequence[StreamStatus],
    statuses: Sequence[StreamStatus],
) -> Document:
    by_connection: dict[str, list[Document]] = defaultdict(list)
    for status in selected:
        by_connection[status.connection].append(_document(status))
    answers = [{"connection": name, "streams": by_connection[name]} for name in loaded]
    fine, counts = count_states(statuses)
    summary = {"streams": len(statuses), "fine": fine, "states": counts}
    inner = answers[0] if connection is not None else {"connections": answers}
    return {**inner, "summary": summary}


def _document(status: StreamStatus) -> Document:
    table, sync, failure = status.table, status.sync, status.sync.failure
    last = status.complete
    return {
        "stream": status.stream,
        "policy": status.policy,
        "result": status.result,
        "needs": status.state if status.needs_person else None,
        "concerns": [
            {"kind": concern.kind, "text": concern.text, "next_step": concern.next_step}
            for concern in status.concerns
        ],
        "last_sync": None if last is None else last.isoformat(timespec="seconds"),
        "seconds_ago": None if last is None else seconds_since(last),
        "due": None if status.rule is None else status.rule.text,
        "stale": status.stale,
        "run_id": sync.run_id,
        "last_failure": None
        if failure is None
        else {
            "time": failure.time.isoformat(timespec="seconds"),
            "seconds_ago": seconds_since(failure.time),
            "run_id": failure.run_id,
            "message": failure.message,
        },
        "failed_checks": [asdict(check) for check in status.failed_checks],
        "figures": None
        if sync.figures is None
        else {**asdict(sync.figures), **list_losses(sync.figures)},
        "partitions": None if status.partitions is None else status.partitions.to_json(),
        "rows": None if table is None else table.rows,
        "source_lag_seconds": status.lag,
        "state": None if table is None or table.state is None else json.loads(table.state),
        "path": None if table is None else table.path,
        "has_table": table is not None and table.exists,
        "iceberg": None if table is None or table.published is None else asdict(table.published),
        "error": None if status.error is None else status.error.message,
    }
