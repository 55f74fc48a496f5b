"""Streams of a configured catalog → the writers of their tables."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from elt_assets.destination.generations import numbered, repeats, requested
from elt_assets.destination.settings import Settings
from elt_assets.errors import ConfigError
from elt_assets.lake.schema.names import table_path
from elt_assets.lake.spark.session import SparkProvider
from elt_assets.lake.write.stream_tables import StreamTables, app_id
from elt_assets.lake.write.table_ownership import check_claims, refuse_foreign
from elt_assets.lake.write.write_spec import WriteSpec, check_columns, next_sync_id
from elt_assets.lake.write.writer import TableWriter
from elt_assets.pipeline.sync import ClosableSink
from elt_assets.protocol.airbyte.catalog import ConfiguredStream, StreamId
from elt_assets.protocol.airbyte.sync_modes import (
    MODES,
)
from elt_assets.storage.directories import make_private_lake
from elt_assets.storage.location import Location
from elt_assets.sync.events import Checkpoint, Committed
from elt_assets.sync.segments import Segment

PROTOCOL_SYNC_MODES = [mode.name for mode in MODES.values() if mode.is_standard]
"""What `spec` says: other members than these the protocol's enumeration does not have."""

Log = Callable[[str, str], None]
"""Told a level, as in the protocol, and a text."""


class Blame:
    """Whose error it is."""

    def __init__(self) -> None:
        self._found: tuple[BaseException, StreamId] | None = None

    @contextmanager
    def on(self, stream: StreamId) -> Iterator[None]:
        """What fails within is this stream's."""
        try:
            yield
        except Exception as error:
            self._found = (error, stream)
            raise

    def stream_of(self, error: BaseException) -> StreamId | None:
        return self._found[1] if self._found is not None and self._found[0] is error else None


class StreamSink:
    """A stream's writer, whose errors are the stream's; that Spark does not start is nobody's."""

    def __init__(self, stream: StreamId, spark: SparkProvider, writer: ClosableSink, blame: Blame):
        self._stream = stream
        self._spark = spark
        self._writer = writer
        self._blame = blame

    def write(self, segment: Segment) -> None:
        self._spark.get()
        with self._blame.on(self._stream):
            self._writer.write(segment)

    def commit(self, checkpoint: Checkpoint) -> Committed:
        with self._blame.on(self._stream):
            return self._writer.commit(checkpoint)

    def close(self) -> None:
        """Remove what was written and never committed."""
        self._writer.close()


class _Repetition:
    """Writer of a complete generation that is overwritten once more: records begin a new one.

    A source that sends states and no record has resumed after its last record: the retry of a sync in which
    another stream failed. Then the rows stay.

    Args:
        open_writer: opens the writer of the new generation, or, if told so, of the one that is there.
    """

    def __init__(self, open_writer: Callable[[bool], ClosableSink]):
        self._open_writer = open_writer
        self._has_records = self._adds = False
        self._writer = open_writer(False)

    def write(self, segment: Segment) -> None:
        self._has_records = True
        self._choose(adds=False)
        self._writer.write(segment)

    def commit(self, checkpoint: Checkpoint) -> Committed:
        has_resumed = self._adds or bool(checkpoint.states)
        self._choose(adds=has_resumed and not self._has_records)
        return self._writer.commit(checkpoint)

    def close(self) -> None:
        self._writer.close()

    def _choose(self, *, adds: bool) -> None:
        if adds != self._adds:
            self._writer.close()
            self._writer, self._adds = self._open_writer(adds), adds


class Opener:
    """Opens the tables of streams for one sync.

    Args:
        log: told of what is worth a user's knowing.
        blame: told of what fails.
    """

    def __init__(self, settings: Settings, spark: SparkProvider, log: Log, blame: Blame):
        self._settings = settings
        self._spark = spark
        self._log = log
        self._blame = blame
        self._run_id = str(uuid.uuid4())

    def check(self, streams: Sequence[ConfiguredStream]) -> None:
        """Refuse what cannot be written, before anything is.

        Raises:
            ConfigError: a stream is there twice, two would share a table, or one lacks what its sync mode
                needs.
        """
        seen: set[StreamId] = set()
        for stream in streams:
            with self._blame.on(stream.id):
                if stream.id in seen:
                    raise ConfigError(f"the catalog configures stream {str(stream.id)!r} twice")
                seen.add(stream.id)
                _refuse_mode(stream)
                check_columns(stream)
        check_claims(
            (f"stream {str(one.id)!r}", self._path(one), self._keeps_history(one))
            for one in streams
        )

    def open(self, stream: ConfiguredStream) -> StreamSink:
        """The sink of a stream, at the newest snapshot of its tables.

        Raises:
            ConfigError: the table is another's, or cannot take the stream as it is configured.
        """
        make_private_lake(self._settings.lake)
        with self._blame.on(stream.id):
            writer: ClosableSink = (
                _Repetition(lambda adds: self._writer(stream, adds=adds))
                if repeats(stream, self._tables(stream).head)
                else self._writer(stream)
            )
            return StreamSink(stream.id, self._spark, writer, self._blame)

    def is_new(self, stream: ConfiguredStream) -> bool:
        """Whether the stream has no table yet."""
        return not self._tables(stream).main.exists

    def _writer(self, stream: ConfiguredStream, *, adds: bool = False) -> TableWriter:
        tables = self._tables(stream)
        for notice in tables.settle(self._run_id):
            self._log("WARN", notice)
        head = tables.head
        if repeats(stream, head):
            self._log("INFO", _repetition(stream, adds=adds))
        landed = numbered(stream, head, adds=adds)
        spec = WriteSpec(
            stream=landed,
            run_id=self._run_id,
            history=self._keeps_history(stream),
            on_schema_change=self._settings.on_schema_change,
            began=next_sync_id(head),
            requested_generation=requested(stream, head, landed.generation_id),
        )
        writer = TableWriter(self._spark, tables, spec, locate=True)
        for change in writer.schema_changes:
            self._log("WARN", f"the schema of stream {str(stream.id)!r} has changed: {change}")
        return writer

    def _tables(self, stream: ConfiguredStream) -> StreamTables:
        settings, found = self._settings, stream.id
        above = [] if found.namespace is None else [found.namespace]
        writer = app_id([settings.namespace, *above, found.name])
        place = Location.of(settings.lake).child(*self._path(stream))
        tables = StreamTables(place.uri, writer, history=self._keeps_history(stream))
        refuse_foreign(
            tables.main,
            f"this destination's stream {str(found)!r}",
            "give the destination another `namespace`, or move the table away",
        )
        return tables

    def _path(self, stream: ConfiguredStream) -> list[str]:
        return table_path(self._settings.namespace, stream.id)

    def _keeps_history(self, stream: ConfiguredStream) -> bool:
        return self._settings.history and stream.deduplicates


def _repetition(stream: ConfiguredStream, *, adds: bool) -> str:
    """Return what the log says of a complete generation that is overwritten once more."""
    generation = f"stream {str(stream.id)!r}: its generation {stream.generation_id} is complete"
    if adds:
        return f"{generation}, and the source sent a state and no record: the table keeps its rows"
    return f"{generation}: the records of this sync replace its rows"


def _refuse_mode(stream: ConfiguredStream) -> None:
    if stream.destination_sync_mode not in MODES:
        raise ConfigError(
            f"stream {str(stream.id)!r}: destination_sync_mode {stream.destination_sync_mode!r} is not "
            "supported",
            guidance=f"write one of {', '.join(MODES)}",
        )
