"""`elt partitions`: lists the partitions of a stream that its source has."""

from __future__ import annotations

import json

import click

from elt_assets.cli.lookup import catalog_stream, start_connector
from elt_assets.cli.output import OK, Output, connection_argument, mask_record, subcommand
from elt_assets.connection import find_place, load_catalog, load_connection
from elt_assets.orchestration.source_partitions import list_contexts
from elt_assets.protocol.catalog import stream_names


@subcommand("partitions", "elt partitions shop orders", "elt partitions shop orders --json")
@connection_argument()
@click.argument("stream")
def command(out: Output, connection: str, stream: str) -> int:
    """List the partitions of a stream that its source has, each with its key and its context.

    STREAM is the name of the stream in the catalog, with a namespace NAMESPACE.STREAM. The connection need
    not configure this stream. Nothing is added to Dagster.
    """
    place = find_place(connection)
    loaded = load_connection(place)
    catalog = load_catalog(place)
    chosen = catalog_stream(loaded, catalog, stream)
    connector = start_connector(loaded, out)
    rows = [
        {
            "key": mask_record(key, connector.mask),
            "context": mask_record(json.loads(bytes(context)), connector.mask),
        }
        for key, context in list_contexts(connector, chosen).by_key.items()
    ]
    texts = [(row["key"], json.dumps(row["context"], ensure_ascii=False)) for row in rows]
    if rows:
        out.table(["key", "context"], texts)
    out.line(f"{len(rows):,} partition{'' if len(rows) == 1 else 's'}")
    name = stream_names([stream.id for stream in catalog.streams])[chosen.stream.id]
    out.document({"connection": loaded.name, "stream": name, "partitions": rows})
    return OK
