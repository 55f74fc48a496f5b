"""The Spark IO manager: takes a stream about to be read and makes it a table; gives tables back."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable, Iterator
from typing import Any

import dagster as dg

from elt_assets.errors import ConfigError, EltError
from elt_assets.lake.files import Change, DataFile
from elt_assets.lake.head import Head
from elt_assets.lake.snapshots import snapshot
from elt_assets.lake.spark import DataFrame
from elt_assets.lake.table import Table, discarding
from elt_assets.lake.tables import app_id
from elt_assets.lake.writer import TableWriter
from elt_assets.orchestration.metadata import (
    TABLE_PATH,
    SyncFigures,
    head_metadata,
    schema_metadata,
    table_metadata,
)
from elt_assets.orchestration.reading import StreamRead
from elt_assets.orchestration.resources import LakeResource, SparkResource
from elt_assets.sync.events import Acknowledged, Estimated, Logged, SessionEvent

_LEVELS = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG,
}


class SparkIOManager(dg.ConfigurableIOManager):
    """Commits a stream's checkpoints as they are sealed; loads any stream as a Spark DataFrame.

    An asset downstream that returns a DataFrame gets a table of its own, replaced at each
    materialisation, at the asset key's levels under the lake's root.
    """

    spark: SparkResource
    lake: LakeResource

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        if obj is None:
            return
        with _told():
            self._handle(context, obj)

    def _handle(self, context: dg.OutputContext, obj: object) -> None:
        if isinstance(obj, StreamRead):
            self._ingest(context, obj)
        elif isinstance(obj, DataFrame):
            self._store(context, obj)
        else:
            raise dg.DagsterInvariantViolationError(
                f"the Spark IO manager stores Spark DataFrames, not {type(obj).__name__}"
            )

    def load_input(self, context: dg.InputContext) -> DataFrame:
        """The rows of the upstream asset's table, at one snapshot."""
        upstream = context.upstream_output
        assert upstream is not None
        with _told():
            uri = self.lake.table_uri(_path_of(upstream))
            return snapshot(self.spark.provider.get(), uri, app_id(upstream.asset_key.path))

    def _ingest(self, context: dg.OutputContext, read: StreamRead) -> None:
        self.spark.provider.warm_up()
        figures, started = SyncFigures(), time.monotonic()
        writer = TableWriter(self.spark.provider, read.tables, read.landing(context.run_id))
        for change in writer.schema_changes:
            context.log.warning(f"the schema has changed: {change}")
        try:
            with contextlib.closing(read.events(writer)) as events:
                for event in events:
                    figures.read = read.progress.records_read
                    figures.bytes = read.progress.bytes_read
                    figures.seconds = time.monotonic() - started
                    self._tell(context, read, event, figures)
        finally:
            writer.close()
        context.add_output_metadata(
            {
                **head_metadata(read.tables.head, read.tables.main.version),
                **figures.metadata(),
                **table_metadata(read.tables.main, read.table_name),
                "elt/policy": read.stream.destination_sync_mode,
                **schema_metadata(writer.schema_changes),
            }
        )

    def _tell(
        self, context: dg.OutputContext, read: StreamRead, event: SessionEvent, figures: SyncFigures
    ) -> None:
        if isinstance(event, Logged):
            context.log.log(_LEVELS.get(event.level, logging.INFO), event.message)
        elif isinstance(event, Estimated):
            context.log.info(f"the source estimates {event.rows} rows")
        elif isinstance(event, Acknowledged):
            figures.add(event.commit)
            if not event.final:
                commit = event.commit
                head = Head(commit.sequence, commit.generation, commit.state)
                metadata = {
                    **head_metadata(head, commit.version),
                    **figures.metadata(),
                    "elt/policy": read.stream.destination_sync_mode,
                }
                context.log_event(dg.AssetObservation(read.key, metadata=metadata))

    def _store(self, context: dg.OutputContext, rows: DataFrame) -> None:
        """Replace a downstream asset's table by a DataFrame."""
        path = _path_of(context)
        table = Table(self.lake.table_uri(path), app_id(context.asset_key.path))
        if table.is_foreign:
            raise ConfigError(
                f"the table {table.uri} was not written by {context.asset_key.to_user_string()}",
                guidance="give the asset another key: its key names its table",
            )
        table.prepare(rows.schema)
        former, files = table.files, table.write_files(rows)
        head = Head(table.head.sequence + 1, table.head.generation + 1, None, context.run_id)
        with discarding(table, files):
            table.commit(Change(files, former), head, _records(files), rows.schema)
        context.add_output_metadata(dict(table_metadata(table, ".".join(path))))


def _records(files: Iterable[DataFile]) -> int:
    return sum(file.records for file in files)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Our errors as what the user reads in the UI."""
    try:
        yield
    except EltError as error:
        raise _failure(error) from error


def _path_of(context: dg.OutputContext) -> list[str]:
    """The table's levels under the root: as its definition says, or else as its key does."""
    given: Any = (context.definition_metadata or {}).get(TABLE_PATH)
    value = getattr(given, "value", given)
    return value.split("/") if isinstance(value, str) else list(context.asset_key.path)


def _failure(error: EltError) -> dg.Failure:
    """What the user reads in the UI; a config error is not worth a retry."""
    metadata = {"failure_type": error.failure_type}
    if error.guidance:
        metadata["what to do"] = error.guidance
    return dg.Failure(
        description=str(error),
        metadata=metadata,
        allow_retries=not isinstance(error, ConfigError),
    )
