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
from elt_assets.protocol.catalog import Catalog, stream_names


@subcommand(
    "discover",
    "elt discover shop",
    "elt discover shop --dry-run",
    "elt discover shop --dry-run --exit-code    # for CI",
)
@connection_argument()
@click.option("--dry-run", is_flag=True, help="Show what would change; write nothing.")
@click.option("--exit-code", is_flag=True, help="With --dry-run: exit code 1 if anything changed.")
def command(out: Output, connection: str, dry_run: bool, exit_code: bool) -> int:
    """Discover the streams of the source, write catalog.json, and show what has changed."""
    if exit_code and not dry_run:
        raise ConfigError("--exit-code needs --dry-run", guidance="write both options")
    place = find_place(connection)
    loaded = load_connection(place)
    connector = start_connector(loaded, out)
    catalog = connector.discover()
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
        }
    )
    return FAILED if exit_code and differences else OK


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
