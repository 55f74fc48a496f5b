"""`elt publish`: publishes the tables of streams in Iceberg and in a catalog, as they are now."""

from __future__ import annotations

import click

from elt_assets.cli.assets import assets_of, select_streams
from elt_assets.cli.output import (
    FAILED,
    OK,
    REFUSED,
    Document,
    Output,
    connection_argument,
    subcommand,
)
from elt_assets.connection import find_place, list_places
from elt_assets.errors import ConfigError
from elt_assets.orchestration.io_manager import project_lake
from elt_assets.pipeline.publication import PublishedTable, publish_tables


@subcommand(
    "publish",
    "elt publish",
    "elt publish shop",
    "elt publish shop users orders",
    "elt publish shop users --replace",
)
@connection_argument(required=False)
@click.argument("streams", nargs=-1, metavar="[STREAM]...")
@click.option(
    "--replace",
    is_flag=True,
    help="Start a new Iceberg table, and make a new entry in the catalog of Delta tables, whatever has the "
    "name there; data files stay.",
)
def command(out: Output, connection: str | None, streams: tuple[str, ...], replace: bool) -> int:
    """Publish the tables of streams in Iceberg, and register them in the catalog of Delta tables, as the
    settings say, up to their newest versions; and say what was done.

    Each sync does it too. This is for tables that were there before, for commits that no sync made, and for
    what a sync could not publish. --replace is for a table that another program made or changed; readers find
    no table until the new one is there.
    """
    if replace and connection is None:
        raise ConfigError(
            "--replace starts new Iceberg tables, and replaces entries of catalogs",
            guidance="name the connection whose tables these are",
        )
    places = list_places() if connection is None else [find_place(connection)]
    results = [
        result
        for place in places
        for asset in select_streams(place.name, assets_of(place), streams).values()
        if asset.connection.destination is None
        for result in publish_tables(asset, project_lake(), replace=replace)
    ]
    handled = [result for result in results if result.reason is None]
    out.table(["table", "result"], [(r.table.name, _describe(r)) for r in handled])
    for result in results:
        if result.error is not None:
            out.warn(f"{result.table.name}: {result.error}")
    if not handled:
        out.line("no table is to be published")
    out.document({"tables": [_document(result) for result in results]})
    errors = [result.error for result in results if result.error is not None]
    if not errors:
        return OK
    return REFUSED if all(isinstance(error, ConfigError) for error in errors) else FAILED


def _describe(result: PublishedTable) -> str:
    if result.entry is not None:
        return result.entry
    if result.publication is None:
        return "failed"
    return f"version {result.publication.version} is published"


def _document(result: PublishedTable) -> Document:
    published, error = result.publication, result.error
    return {
        "table": result.table.name,
        "snapshot": None if published is None else str(published.snapshot),
        "version": None if published is None else published.version,
        "entry": result.entry,
        "reason": result.reason,
        "error": None if error is None else error.message,
    }
