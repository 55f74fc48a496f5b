"""`elt sync`: syncs streams of a connection in this process, with live progress bars."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import click

from elt_assets.cli.live import LiveProgress
from elt_assets.cli.lookup import find_stream
from elt_assets.cli.options import connection_argument, partition_option, subcommand
from elt_assets.cli.output import FAILED, INTERRUPTED, OK, REFUSED, Document, Output
from elt_assets.connection import find_place
from elt_assets.errors import ConfigError, EltError
from elt_assets.orchestration.assets.run_config import Refresh
from elt_assets.orchestration.component import ConnectionComponent
from elt_assets.orchestration.instance import open_instance
from elt_assets.orchestration.materialize import Materialized, materialize
from elt_assets.pipeline.figures import SyncFigures
from elt_assets.protocol.airbyte.catalog import StreamId, stream_names


@subcommand(
    "sync",
    "elt sync shop",
    "elt sync shop users orders",
    "elt sync weather readings --partition 2026-01-05",
    "elt sync shop users --refresh truncate",
)
@connection_argument()
@click.argument("streams", nargs=-1, metavar="[STREAM]...")
@partition_option("Partition key, for streams with partitions.")
@click.option(
    "--refresh",
    type=click.Choice([Refresh.retain.name, Refresh.truncate.name]),
    help="Read everything again; `truncate` replaces the rows of the table at the end, `retain` keeps them.",
)
def command(
    out: Output,
    connection: str,
    streams: Sequence[str],
    partition: str | None,
    refresh: str | None,
) -> int:
    """Sync all streams of a connection, or the named ones.

    This is a Dagster run in this process, or one for each kind of `partitions`: the UI shows its events, and
    the next sync continues from its state. On a terminal, progress bars show what each read is doing. The
    exit code is 1 or 2 if a stream failed; the other streams are still synced.
    """
    component = ConnectionComponent.load_at(find_place(connection))
    assets = {asset.stream.id: asset for asset in component.stream_assets()}
    chosen = [find_stream(connection, assets, name) for name in streams] or list(assets)
    selected = [assets[stream] for stream in chosen]
    with open_instance() as instance, LiveProgress(is_enabled=out.shows_progress) as live:
        result = materialize(
            component,
            selected,
            instance,
            partition=partition,
            refresh=Refresh[refresh or Refresh.none.name],
            log=lambda level, text: _log(level, text, out, live),
            watch=live.watch,
        )
    stream_texts = stream_names(assets)
    names = {stream: stream_texts[stream] for stream in chosen}
    _print(result, names, out)
    out.document(_document(result, names))
    if result.is_interrupted:
        return INTERRUPTED
    if any(isinstance(error, ConfigError) for error in result.errors):
        return REFUSED
    return FAILED if result.errors else OK


def _log(level: int, text: str, out: Output, live: LiveProgress) -> None:
    """Show a line of the run's log: warnings and errors always, other lines only if there are no bars."""
    if live.is_shown:
        if level >= logging.WARNING:
            live.line(f"warning: {text}")
    elif level >= logging.WARNING:
        out.warn(text)
    elif level >= logging.INFO:
        out.note(text)


def _print(result: Materialized, names: dict[StreamId, str], out: Output) -> None:
    columns = ["stream", "read", "committed", "rejected", "result"]
    empty = SyncFigures()
    rows = []
    for stream, name in names.items():
        figures = result.figures.get(stream, empty)
        word = "complete" if stream in result.complete else "failed"
        rows.append((name, figures.read, figures.committed, figures.rejected, word))
    out.table(columns, rows)
    for error in result.errors:
        out.verdict("failed", str(error), good=False)


def _document(result: Materialized, names: dict[StreamId, str]) -> Document:
    return {
        "run_id": result.run_ids[0],
        "run_ids": result.run_ids,
        "streams": [
            {
                "stream": name,
                "complete": stream in result.complete,
                **_counts(result.figures.get(stream, SyncFigures())),
            }
            for stream, name in names.items()
        ],
        "errors": [_failure(error) for error in result.errors],
    }


def _counts(figures: SyncFigures) -> Document:
    return {name: getattr(figures, name) for name in ("read", "committed", "rejected")}


def _failure(error: EltError) -> Document:
    return {"failure_type": error.failure_type, "message": error.message}
