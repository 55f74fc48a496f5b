"""The read of a source that fills columns of rows that a stream's table has already: `elt backfill`.

`orchestration.backfilling` plans and runs it. How rows are filled, and why a change meanwhile wins, is in
`lake.admin.backfill`.

The source is asked for a full refresh of key and columns alone. Sources that do not heed the schema of the
catalog send whole rows, of which the others are left out. The source gets no state, and none is stored.
"""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterator, Sequence
from functools import partial

from elt_assets.errors import ConfigError
from elt_assets.lake.admin.backfill import ColumnBackfill, ColumnRequest
from elt_assets.lake.columns.logical_types import Column, column_of
from elt_assets.lake.write.companions import StreamTables
from elt_assets.lake.write.sync_columns import columns_of, key_of, stream_part
from elt_assets.pipeline.connection_read import ConnectionRead, RunResources
from elt_assets.pipeline.connectors import make_source
from elt_assets.pipeline.read import ClosableSink
from elt_assets.pipeline.stream import ConnectionStream
from elt_assets.pipeline.stream_plan import StreamPlan, plan_replay
from elt_assets.protocol.catalog import FULL_REFRESH, ConfiguredStream
from elt_assets.sync.events import Logged
from elt_assets.sync.field_selection import properties
from elt_assets.sync.record_filter import RecordFilter
from elt_assets.sync.session import StreamChanges


def find_columns(asset: ConnectionStream, tables: StreamTables, names: Sequence[str]) -> list[str]:
    """Return the columns of a table that fields or columns of these names are.

    Raises:
        ConfigError: they cannot be filled; says why, and what to do.
    """
    _refuse_stream(asset, tables)
    main = tables.main
    own = [column_of(field) for field in stream_part(main.schema).fields]
    columns = [_find_column(asset, own, name) for name in dict.fromkeys(names)]
    key = {path[0] for path in key_of(asset.make_stored_stream(), main)}
    for column in columns:
        if column in key or column in main.partition_by:
            what = "of the key" if column in key else "a partition column"
            raise ConfigError(
                f"{asset.name}: the column {column!r} is {what}: it cannot be filled",
                guidance=f"read the stream from the beginning: `elt sync {_words(asset)} --refresh truncate`",
            )
    return columns


def _find_column(asset: ConnectionStream, own: Sequence[Column], name: str) -> str:
    for column in own:
        if name in (column.name, column.source):
            return column.name
    names = [column.name for column in own]
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(names)}"
    raise ConfigError(
        f"{asset.name}: the table has no column {name!r}; {hint}",
        guidance=f"if the column is new: run `elt discover {asset.connection.name}`, and sync the stream "
        "once, so that new rows have it; then fill the rows from before",
    )


def _refuse_stream(asset: ConnectionStream, tables: StreamTables) -> None:
    stream, settings = asset.make_stored_stream(), asset.settings
    refresh = f"`elt sync {_words(asset)} --refresh truncate` reads all rows again"
    if asset.connection.destination is not None:
        raise ConfigError(
            f"{asset.name}: its rows are in another destination than the lake",
            guidance="fill the columns there, or send all rows again",
        )
    if settings.partitions is not None:
        raise ConfigError(
            f"{asset.name} has partitions, each of which is read by itself",
            guidance="materialise the partitions again, in a backfill of Dagster",
        )
    if not stream.deduplicates or not stream.key:
        raise ConfigError(
            f"{asset.name}: its rows have no key by which values find them: its policy is "
            f"{stream.destination_sync_mode}",
            guidance=f"{refresh}; or set `destination_sync_mode: append_dedup` and a `primary_key`",
        )
    if not tables.main.exists:
        raise ConfigError(
            f"{asset.name} has no table yet", guidance=f"sync it: `elt sync {_words(asset)}`"
        )
    asset.refuse_foreign(tables.main)


def _words(asset: ConnectionStream) -> str:
    return f"{asset.connection.name} {asset.stream.id}"


class BackfillRead(ConnectionRead):
    """A full refresh of key and columns, whose rows fill columns of the stream's tables."""

    def __init__(self, plan: StreamPlan, request: ColumnRequest, resources: RunResources):
        self.plan, self.request = plan, request
        connection = plan.asset.connection
        connector = make_source(connection, resources.staging.folder, on_log=resources.log)
        self.sink: ColumnBackfill | None = None
        super().__init__([plan], [], connector, resources)

    def make_filter(self, plan: StreamPlan) -> RecordFilter | None:
        return plan.asset.record_filter()

    def make_request(self, plan: StreamPlan) -> ConfiguredStream:
        """Return the stream with key, columns and the fields of conditions alone."""
        stream = copy.copy(super().make_request(plan))
        described = copy.copy(stream.stream)
        own = columns_of(plan.asset.make_stored_stream(), plan.tables.main.schema)
        sources = {column.source for column in own if column.name in self.request.columns}
        renames = plan.asset.renames
        old_names = {} if renames is None else {new: old for old, new in renames.names.items()}
        field_names = {old_names.get(name, name) for name in sources}
        field_names |= {path[0] for path in plan.asset.stream.key}
        field_names |= {condition.field[0] for condition in plan.asset.conditions}
        fields = properties(described.json_schema)
        narrowed = {name: schema for name, schema in fields.items() if name in field_names}
        described.json_schema = {**described.json_schema, "properties": narrowed}
        described.is_resumable = False
        stream.stream, stream.sync_mode = described, FULL_REFRESH
        stream.extra = {}
        return stream

    def open_sink(self, stream: ConfiguredStream) -> ClosableSink:
        plan, resources = self.plan, self._resources
        self.sink = ColumnBackfill(
            resources.spark,
            plan.tables,
            plan.write_spec(resources.run_id),
            self.request,
            self.staging,
            partial(self._slice_source, stream),
        )
        return self.sink

    def list_notices(self) -> Iterator[Logged]:
        for connector in self.connectors:
            yield from (Logged(level, text) for level, text in connector.notices())

    def changes(self, _open_sink: object) -> StreamChanges | None:
        """Let the stream be as it is: schemas that a tap sends during the read change nothing."""
        return None


def plan_backfill(
    asset: ConnectionStream, tables: StreamTables, request: ColumnRequest, resources: RunResources
) -> BackfillRead:
    """Plan the read that fills columns.

    Args:
        request: with columns of `find_columns`.
    """
    return BackfillRead(plan_replay(asset, tables), request, resources)


def refuse_absent(read: BackfillRead) -> list[str]:
    """Return the columns of which the source gave no value; the rows that it gave are not known to have them.

    Raises:
        ConfigError: the source does not have one of them any more.
    """
    assert read.sink is not None
    done = read.sink.done
    absent = [name for name in read.request.columns if not done.values.get(name)]
    if not absent:
        return []
    described = read.connector.discover().index_streams().get(read.plan.id)
    fields = {} if described is None else properties(described.json_schema)
    names = {name.lower() for name in fields}
    gone = [name for name in absent if names and name.lower() not in names]
    if gone:
        raise ConfigError(
            f"{read.plan.asset.name}: the source has no {', '.join(map(repr, gone))} (any more), so no row "
            "got a value of it",
            guidance=f"run `elt discover {read.connection.name} --dry-run`, which shows what the source has",
        )
    return absent
