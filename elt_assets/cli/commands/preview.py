"""`elt preview`: a stream's first records, as they would be stored, and nothing else."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import click

from elt_assets import paths
from elt_assets.cli.lookup import find_stream
from elt_assets.cli.options import connection_argument, count_option, subcommand
from elt_assets.cli.output import OK, Output, cut, masked
from elt_assets.connection import (
    Connection,
    Stream,
    load_catalog,
    load_connection,
    resolve_streams,
)
from elt_assets.errors import EltError, SystemFailure
from elt_assets.pipeline.connection_stream import ConnectionStream, default_key
from elt_assets.pipeline.connectors import connect
from elt_assets.protocol.airbyte.catalog import (
    Catalog,
    ConfiguredCatalog,
    stream_names,
)
from elt_assets.protocol.airbyte.messages import Message, Noise, RawRecord
from elt_assets.runner.connector import Connector
from elt_assets.sync.selection.fields import notices

_CELL = 60
"""Characters of a value in a table."""
_COLUMN = 14
"""Characters that a column should have at least; where there are more columns than that allows, each
record is shown from top to bottom."""


@subcommand("preview", "elt preview shop users", "elt preview shop users -n 5 --json")
@connection_argument()
@click.argument("stream")
@count_option("records")
def command(out: Output, connection: str, stream: str, count: int) -> int:
    """Show the first records of a stream, as they would be stored. Nothing is stored.

    STREAM is its name in the catalog; with a namespace, NAMESPACE.STREAM. It may be a stream that the
    connection does not configure.
    """
    folder = paths.connection_folder(connection)
    loaded = load_connection(folder)
    catalog = load_catalog(folder)
    chosen = _chosen(loaded, catalog, stream)
    for notice in notices(chosen.fields):
        out.warn(notice)
    connector = connect(loaded, paths.staging())
    records: list[Any] = []
    failure: EltError | None = None
    try:
        withhold = any(one.fields is not None for one in loaded.streams)
        with contextlib.closing(_records(connector, chosen, withhold=withhold)) as found:
            for record in itertools.islice(found, count):
                records.append(record)  # noqa: PERF402 - those before a failure count
    except EltError as error:
        if not records:
            raise
        failure = error  # what the source said before it broke is worth seeing too
    shown = [masked(record, connector.mask) for record in records]
    configured = chosen.stream
    _tell(shown, list(configured.stream.json_schema.get("properties") or {}), out)
    name = stream_names([one.id for one in catalog.streams])[configured.id]
    out.document({"connection": loaded.name, "stream": name, "records": shown})
    if failure is not None:
        raise failure
    return OK


def _chosen(connection: Connection, catalog: Catalog, name: str) -> ConnectionStream:
    """A stream of the catalog, as the connection wants it, or as it stands; of the connection as if it wanted
    nothing else.

    Raises:
        ConfigError: the catalog has no such stream, or the connection cannot have it so.
    """
    known = {stream.id: stream for stream in catalog.streams}
    wanted_id = find_stream(connection.name, known, name)
    plain = Stream(name=wanted_id.name, namespace=wanted_id.namespace)
    wanted = next((one for one in connection.streams if one.id == wanted_id), plain)
    only = connection.model_copy(update={"streams": [wanted]})
    (stream,) = resolve_streams(only, catalog)
    stream.generation_id, stream.minimum_generation_id = 1, 0
    stream.sync_id = int(time.time() * 1000)
    return ConnectionStream(only, stream, default_key(only, stream))


def _records(
    connector: Connector,
    stream: ConnectionStream,
    *,
    withhold: bool,
) -> Generator[Any, None, None]:
    """A stream's records from the beginning, as they would be stored; the connector ends with the
    iterator.

    Raises:
        EltError: as `Connector.read`; or it says nothing that is a message.
    """
    keep = stream.record_filter()
    catalog = ConfiguredCatalog(streams=[stream.asked()])
    understood, noise = False, 0
    with contextlib.closing(connector.read(catalog, withhold=withhold)) as messages:
        for message in messages:
            if isinstance(message, Message):
                noise += isinstance(message, Noise)
                understood = understood or not isinstance(message, Noise)
            elif (message.stream, message.namespace) == stream.stream.id:
                understood = True
                yield _value(message if keep is None else keep(message))
    if noise and not understood:
        raise SystemFailure(
            f"connector {connector.name} printed {noise} lines, none of which is a message",
            guidance="see whether `source` names a program that speaks the Airbyte Protocol",
        )


def _value(record: RawRecord) -> Any:
    text = bytes(record.data).decode("utf-8", "replace")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _tell(records: Sequence[Any], known: Sequence[str], out: Output) -> None:
    """A row for each record; where there are too many columns for that, a table for each."""
    rows = [
        record if isinstance(record, Mapping) else {"(no object)": record} for record in records
    ]
    names = dict.fromkeys(name for row in rows for name in row)
    columns = [*(name for name in known if name in names), *(n for n in names if n not in known)]
    if len(columns) * _COLUMN <= out.width:
        if rows:
            out.table(columns, [[_cell(row, name) for name in columns] for row in rows])
    else:
        for number, row in enumerate(rows, 1):
            out.table([f"record {number}", ""], [(n, _cell(row, n)) for n in columns if n in row])
    out.line(f"{len(rows)} record{'' if len(rows) == 1 else 's'}")


def _cell(row: Mapping[str, Any], name: str) -> object:
    """A value as it reads best; what is not there is blank, and null is not."""
    if name not in row:
        return None
    value = row[name]
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return cut(value, _CELL) if isinstance(value, str) else value
    return cut(json.dumps(value, ensure_ascii=False), _CELL)
