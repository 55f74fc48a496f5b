"""`elt publish`: publishes the tables of the project in Iceberg and in a catalog, as they are now."""

from __future__ import annotations

from collections.abc import Iterator

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
from elt_assets.pipeline.publication import PublishedTable, publish_downstream, publish_stream
from elt_assets.pipeline.table_names import list_downstream


@subcommand(
    "publish",
    "elt publish",
    "elt publish shop",
    "elt publish shop users orders",
    "elt publish shop users --replace",
    "elt publish report daily",
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
    """Publish the tables of the project in Iceberg, and register them in the catalog of Delta tables, as the
    settings say, up to their newest versions; and say what was done.

    Each sync does it too. This is for tables that were there before, for commits that no sync made, and for
    what a sync could not publish. --replace is for a table that another program made or changed; readers find
    no table until the new one is there.

    Without names, all tables are published, also those of assets downstream that are in the lake. One of
    these is named by the parts of its key, or the first of them.
    """
    if replace and connection is None:
        raise ConfigError(
            "--replace starts new Iceberg tables, and replaces entries of catalogs",
            guidance="name the connection whose tables these are",
        )
    results = list(_publish(connection, streams, replace=replace))
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


def _publish(
    connection: str | None, streams: tuple[str, ...], *, replace: bool
) -> Iterator[PublishedTable]:
    lake, places = project_lake(), list_places()
    downstream: list[tuple[str, ...]] = []
    if connection is None:
        downstream = list(list_downstream(lake))
    elif connection not in [place.name for place in places]:
        key = (connection, *streams)
        downstream = [levels for levels in list_downstream(lake) if levels[: len(key)] == key]
        # What is neither is refused as a connection that does not exist.
        places = [] if downstream else [find_place(connection)]
    else:
        places = [find_place(connection)]
    for place in places:
        for asset in select_streams(place.name, assets_of(place), streams).values():
            if asset.connection.destination is None:
                yield from publish_stream(asset, lake, replace=replace)
    for levels in downstream:
        yield from publish_downstream(levels, lake, replace=replace)


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
