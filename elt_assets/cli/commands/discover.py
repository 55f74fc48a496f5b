"""`elt discover`: writes the catalog of a source, and shows its changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import click

from elt_assets.cli.assets import find_load_error
from elt_assets.cli.lookup import start_connector
from elt_assets.cli.output import FAILED, OK, Document, Output, connection_argument, subcommand
from elt_assets.connection import (
    Connection,
    ConnectionPlace,
    find_place,
    load_catalog,
    load_connection,
    save_catalog,
)
from elt_assets.connection.catalog_diff import changes
from elt_assets.errors import ConfigError
from elt_assets.lake.columns.added import list_missing
from elt_assets.lake.write.companions import app_id
from elt_assets.lake.write.paths import open_tables
from elt_assets.lake.write.sync_columns import stream_part
from elt_assets.orchestration.io_manager import project_lake
from elt_assets.pipeline.sampling import propose, read_sample
from elt_assets.pipeline.stream import key_levels, table_path
from elt_assets.protocol.catalog import Catalog, stream_names
from elt_assets.runner.connector import Connector
from elt_assets.storage.location import Location
from elt_assets.sync.field_selection import properties


@subcommand(
    "discover",
    "elt discover shop",
    "elt discover shop --dry-run",
    "elt discover shop --dry-run --exit-code    # for CI",
    "elt discover shop --sample 1000 --dry-run",
)
@connection_argument()
@click.option("--dry-run", is_flag=True, help="Show what would change; write nothing.")
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    help="Read this many records of each configured stream (of all, if none is configured), and propose "
    "types for fields that the source does not describe, or describes wrongly.",
)
@click.option("--exit-code", is_flag=True, help="With --dry-run: exit code 1 if anything changed.")
def command(
    out: Output, connection: str, dry_run: bool, exit_code: bool, sample: int | None
) -> int:
    """Discover the streams of the source, write catalog.json, and show what has changed.

    With `--sample`, records are read for their types; none is stored or shown.
    """
    if exit_code and not dry_run:
        raise ConfigError("--exit-code needs --dry-run", guidance="write both options")
    place = find_place(connection)
    loaded = load_connection(place)
    connector = start_connector(loaded, out)
    catalog = connector.discover()
    sampled = {} if sample is None else _propose(connector, loaded, catalog, sample, out)
    previous = _previous(place, out)
    differences = changes(previous or Catalog(streams=[]), catalog)
    names = stream_names(
        {stream.id for stream in (*catalog.streams, *(previous or catalog).streams)}
    )
    streams = _streams(catalog, loaded)
    _print_streams(streams, out)
    if previous is None:
        out.line(f"there was no {place.catalog.name} before")
    elif not differences:
        out.line(f"nothing has changed since {place.catalog.name} was written")
    else:
        out.table(
            ["stream", "change", "field", "before", "after"],
            [(names[c.stream], c.kind, c.field, c.before, c.after) for c in differences],
        )
    added = _list_added(loaded, catalog)
    if added:
        out.line(
            f"columns that syncs have added, and the catalog does not declare: {', '.join(added)}"
        )
    problem = find_load_error(loaded, catalog)
    if problem is not None:
        out.warn(f"with this catalog the connection cannot be loaded:\n{problem}")
    path = place.catalog if dry_run else save_catalog(place, catalog)
    out.line(f"{path} was not changed" if dry_run else f"wrote {path}")
    out.document(
        {
            "connection": loaded.name,
            "catalog": str(path),
            "written": not dry_run,
            "streams": streams,
            "changes": [
                {**asdict(change), "stream": names[change.stream], "told": change.description}
                for change in differences
            ],
            "sampled": sampled,
            "added": added,
        }
    )
    return FAILED if exit_code and differences else OK


def _propose(
    connector: Connector, connection: Connection, catalog: Catalog, count: int, out: Output
) -> Document:
    """Put the types that records show into a catalog. Return how many records of each stream were read."""
    names = stream_names([stream.id for stream in catalog.streams])
    configured = {stream.id for stream in connection.streams}
    sampled: Document = {}
    declared = Catalog(streams=list(catalog.streams))
    for number, stream in enumerate(declared.streams):
        if configured and stream.id not in configured:
            continue
        name = names[stream.id]
        out.note(f"reading up to {count:,} records of {name}")
        sample = read_sample(connector, stream, count)
        if sample.failure is not None:
            out.warn(f"{name}: after {sample.records:,} records: {sample.failure.message}")
        sampled[name] = sample.records
        catalog.streams[number] = propose(stream, sample)
    differences = changes(declared, catalog)
    out.line(f"records read: {', '.join(f'{name} {n:,}' for name, n in sampled.items()) or 'none'}")
    if differences:
        out.line("their values differ from what the source declares:")
        rows = [(names[c.stream], c.field, c.before, c.after) for c in differences]
        out.table(["stream", "field", "declared", "proposed"], rows)
    else:
        out.line("their values fit what the source declares")
    return sampled


def _list_added(connection: Connection, catalog: Catalog) -> list[str]:
    """Return the columns that syncs have added to tables, and that a catalog does not declare."""
    names = stream_names([stream.id for stream in catalog.streams])
    described = catalog.index_streams()
    added = []
    for settings in connection.streams if connection.destination is None else ():
        stream = described.get(settings.id)
        if stream is None:
            continue
        path, writer = (
            table_path(connection, settings.id),
            app_id(key_levels(connection.name, stream.id)),
        )
        tables = open_tables(Location.parse(project_lake()), path, writer)
        missing = list_missing(stream_part(tables.main.schema), properties(stream.json_schema))
        added += [f"{names[settings.id]}.{name}" for name in missing]
    return added


def _print_streams(streams: Sequence[Document], out: Output) -> None:
    """Print a table of the source's streams."""
    names = ["stream", "sync modes", "primary key", "cursor", "fields", "configured"]
    rows = [
        [
            stream["stream"],
            ", ".join(stream["sync_modes"]),
            ", ".join(map(".".join, stream["primary_key"])),
            ".".join(stream["cursor_field"]),
            stream["fields"],
            "yes" if stream["configured"] else "",
        ]
        for stream in streams
    ]
    if any(stream["is_file_based"] for stream in streams):
        names.append("files")
        for row, stream in zip(rows, streams, strict=True):
            row.append("yes" if stream["is_file_based"] else "")
    out.table(names, rows)


def _streams(catalog: Catalog, connection: Connection) -> list[Document]:
    configured = {stream.id for stream in connection.streams}
    names = stream_names([stream.id for stream in catalog.streams])
    return [
        {
            "stream": names[stream.id],
            "sync_modes": stream.sync_modes,
            "primary_key": stream.source_defined_primary_key or [],
            "cursor_field": stream.default_cursor_field or [],
            "fields": len(stream.json_schema.get("properties") or {}),
            "configured": stream.id in configured,
            "is_file_based": bool(stream.is_file_based),
        }
        for stream in catalog.streams
    ]


def _previous(place: ConnectionPlace, out: Output) -> Catalog | None:
    """Return the previous catalog; None if there is none, or if it cannot be read."""
    try:
        return load_catalog(place)
    except ConfigError as error:
        if place.catalog.exists():
            out.warn(error.message)
        return None
