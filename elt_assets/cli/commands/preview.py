"""`elt preview`: shows the first records of a stream, as they would be stored."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import click

from elt_assets import paths
from elt_assets.cli.lookup import catalog_stream
from elt_assets.cli.output import (
    OK,
    Output,
    connection_argument,
    count_option,
    cut,
    mask_record,
    subcommand,
)
from elt_assets.connection import find_place, load_catalog, load_connection
from elt_assets.errors import EltError, SystemFailure
from elt_assets.pipeline.connectors import make_source
from elt_assets.pipeline.stream import ConnectionStream
from elt_assets.protocol.catalog import ConfiguredCatalog, stream_names
from elt_assets.protocol.messages import Message, PlainText, RawRecord
from elt_assets.protocol.wire import loads
from elt_assets.runner.connector import Connector
from elt_assets.sync.field_selection import describe_kept_fields

_CELL = 60
"""Maximum length of a value in a table, in characters."""
_COLUMN = 14
"""Minimum width of a column in characters. With too many columns, each record is shown as a table."""


@subcommand("preview", "elt preview shop users", "elt preview shop users -n 5 --json")
@connection_argument()
@click.argument("stream")
@count_option("records")
def command(out: Output, connection: str, stream: str, count: int) -> int:
    """Show the first records of a stream, as they would be stored. Nothing is stored.

    STREAM is the name of the stream in the catalog, with a namespace NAMESPACE.STREAM. The connection need
    not configure this stream.
    """
    place = find_place(connection)
    loaded = load_connection(place)
    catalog = load_catalog(place)
    chosen = catalog_stream(loaded, catalog, stream)
    configured = chosen.stream
    configured.generation_id, configured.minimum_generation_id = 1, 0
    configured.sync_id = int(time.time() * 1000)
    for notice in describe_kept_fields(chosen.fields):
        out.warn(notice)
    connector = make_source(loaded, paths.staging())
    records: list[Any] = []
    failure: EltError | None = None
    try:
        withhold = any(stream.fields is not None for stream in loaded.streams)
        with contextlib.closing(_records(connector, chosen, withhold=withhold)) as messages:
            for record in itertools.islice(messages, count):
                records.append(record)  # noqa: PERF402 - keeps the records before a failure
    except EltError as error:
        if not records:
            raise
        failure = error  # the records before the failure are shown first
    masked_records = [mask_record(record, connector.mask) for record in records]
    stored = chosen.make_stored_stream().stream.json_schema
    _print_records(masked_records, list(stored.get("properties") or {}), out)
    name = stream_names([stream.id for stream in catalog.streams])[configured.id]
    out.document({"connection": loaded.name, "stream": name, "records": masked_records})
    if failure is not None:
        raise failure
    return OK


def _records(
    connector: Connector,
    stream: ConnectionStream,
    *,
    withhold: bool,
) -> Generator[Any, None, None]:
    """Yield the records of a stream from the beginning, as they would be stored. The connector ends with the
    iterator.

    Raises:
        EltError: as for `Connector.read`; or no line of the connector's output is a message.
    """
    keep = stream.record_filter()
    catalog = ConfiguredCatalog(streams=[stream.make_sampled_stream()])
    has_message, noise = False, 0
    with (
        connector.stage_documents(),  # a source may send some that it is not asked for
        contextlib.closing(connector.read(catalog, withhold=withhold)) as messages,
    ):
        for message in messages:
            if isinstance(message, Message):
                noise += isinstance(message, PlainText)
                has_message = has_message or not isinstance(message, PlainText)
            elif isinstance(message, RawRecord) and (
                (message.stream, message.namespace) == stream.stream.id
            ):
                has_message = True
                stored = message if keep is None else keep(message)
                if stored is not None:
                    yield _value(stored)
    if noise and not has_message:
        raise SystemFailure(
            f"connector {connector.name} printed {noise} lines, none of which is a message",
            guidance="check that `source` names a program that speaks the Airbyte Protocol",
        )


def _value(record: RawRecord) -> Any:
    try:
        return loads(record.data)
    except (ValueError, RecursionError):
        return bytes(record.data).decode("utf-8", "replace")


def _print_records(records: Sequence[Any], field_names: Sequence[str], out: Output) -> None:
    """Print a table with a row for each record; if it has too many columns, a table for each record."""
    rows = [
        record if isinstance(record, Mapping) else {"(no object)": record} for record in records
    ]
    names = dict.fromkeys(name for row in rows for name in row)
    columns = [
        *(name for name in field_names if name in names),
        *(n for n in names if n not in field_names),
    ]
    if len(columns) * _COLUMN <= out.width:
        if rows:
            out.table(columns, [[_cell(row, name) for name in columns] for row in rows])
    else:
        for number, row in enumerate(rows, 1):
            out.table([f"record {number}", ""], [(n, _cell(row, n)) for n in columns if n in row])
    out.line(f"{len(rows)} record{'' if len(rows) == 1 else 's'}")


def _cell(row: Mapping[str, Any], name: str) -> object:
    """Return the content of a cell: None if the record lacks the field; a null is shown as `null`."""
    if name not in row:
        return None
    value = row[name]
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return cut(value, _CELL) if isinstance(value, str) else value
    return cut(json.dumps(value, ensure_ascii=False), _CELL)
