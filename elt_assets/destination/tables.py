"""The tables that the streams of a configured catalog are written to, and the generation of each sync.

First the rules of generations, which choose the one that a sync writes (`set_generation`); then
`TableOpener`, with which `elt-destination` and `target-elt` open their tables.

The generation numbers of a table only increase. They are those of the platform, unless it overwrites a
complete generation again under the same `generation_id`, as PyAirbyte does: then the table assigns its own.

Spec: ConfiguredAirbyteStream as of 0.9: a truncating refresh has its own generation, and no older generation
is kept. Until it is complete, readers see the older generations.
"""

from __future__ import annotations

import copy
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from elt_assets import paths
from elt_assets.destination.settings import Settings
from elt_assets.errors import ConfigError
from elt_assets.lake.columns import from_json_schema
from elt_assets.lake.delta.commit_metadata import CommitMetadata, Refresh
from elt_assets.lake.publish.followers import LakeTable
from elt_assets.lake.session import SparkProvider
from elt_assets.lake.write.companions import StreamTables, app_id, refuse_foreign
from elt_assets.lake.write.documents import DocumentTransfer
from elt_assets.lake.write.paths import TablePaths, open_tables
from elt_assets.lake.write.stored_stream import StoredStream, next_sync_id
from elt_assets.lake.write.sync_columns import WriteSpec, check_columns, refuse_own_name
from elt_assets.lake.write.writer import TableWriter
from elt_assets.pipeline.following import make_lake_table
from elt_assets.pipeline.read import ClosableSink
from elt_assets.protocol.catalog import FULL_REFRESH, ConfiguredStream, StreamId, find_modes
from elt_assets.protocol.message_rules import DEFAULT_STAGING, STAGING
from elt_assets.storage.folders import make_private_lake
from elt_assets.storage.location import Location
from elt_assets.storage.staging import StagedFiles
from elt_assets.sync.documents import Documents
from elt_assets.sync.events import Checkpoint, Committed
from elt_assets.sync.field_selection import declare_document
from elt_assets.sync.segments import Segment


class OlderGenerationError(ConfigError):
    """The generation of a sync is older than that of its table."""


class IncompatibleRefreshError(ConfigError):
    """An unfinished refresh was started with other settings, and cannot be resumed."""


def publishes_at_end(stream: ConfiguredStream) -> bool:
    """Return whether the states of a stream are withheld until its last record: it overwrites, without a
    generation from the platform.

    Otherwise the next sync cannot know whether its source resumes from a state or reads from the beginning.
    """
    return stream.overwrites and not _is_numbered(stream)


def read_as(stream: ConfiguredStream) -> ConfiguredStream:
    """Return the stream as the session reads it: its states are committed as they arrive, unless it
    `publishes_at_end`."""
    resumable = _resumable(stream)
    if publishes_at_end(stream):
        resumable.sync_mode, resumable.stream.is_resumable = FULL_REFRESH, False
    return resumable


def is_repeated_overwrite(stream: ConfiguredStream, metadata: CommitMetadata) -> bool:
    """Return whether the stream overwrites a complete generation again, under the same `generation_id`."""
    is_building = metadata.refresh is not None and metadata.refresh.truncates
    is_complete = metadata.sequence > 0 and not is_building
    overwrites = stream.overwrites and _is_numbered(stream)
    return overwrites and is_complete and stream.generation_id == _newest_requested(metadata)


def set_generation(
    stream: ConfiguredStream, metadata: CommitMetadata, *, adds: bool = False
) -> ConfiguredStream:
    """Return the stream with the generation and the sync id that its sync writes.

    They are those of the catalog. The lake assigns them if the catalog has none, or gives an overwrite the
    minimum 0, which keeps older rows. An omitted minimum is 0. An unfinished refresh of the same generation
    is resumed.

    Args:
        adds: whether a repeated overwrite adds its records to the complete generation, instead of a new one.

    Raises:
        ConfigError: the generation is older than the table's, or is a refresh that was started differently.
    """
    numbered = _resumable(stream)
    if stream.generation_id is None or not _is_numbered(stream):
        stored = StoredStream(stream, metadata)
        if not stream.overwrites and stored.must_restart:
            raise _incompatible_refresh(stream, metadata.refresh)
        own = stored.generations("truncate" if stream.overwrites else "none")
        numbered.generation_id = own.generation_id
        numbered.minimum_generation_id = own.minimum_generation_id
    elif stream.minimum_generation_id in (None, 0, stream.generation_id):
        _refuse_older(stream, stream.generation_id, metadata)
        is_new = stream.generation_id > _newest_requested(metadata)
        if is_new or (is_repeated_overwrite(stream, metadata) and not adds):
            numbered.generation_id = max(stream.generation_id, _newest(metadata) + 1)
        else:
            numbered.generation_id = _newest(metadata)
        numbered.minimum_generation_id = (
            numbered.generation_id if stream.minimum_generation_id else 0
        )
        _refuse_incompatible(numbered, metadata)
    if numbered.sync_id is None:
        numbered.sync_id = next_sync_id(metadata)
    return numbered


def find_requested_generation(
    stream: ConfiguredStream, metadata: CommitMetadata, generation: int | None
) -> int | None:
    """Return the `requested_generation` (see `CommitMetadata`) of the generation that a sync writes.

    Args:
        generation: the number of this generation in the table.
    """
    if not _is_numbered(stream):
        return metadata.requested_generation if generation == _newest(metadata) else None
    return stream.generation_id if generation != stream.generation_id else None


def _resumable(stream: ConfiguredStream) -> ConfiguredStream:
    """Return the stream as resumable from each of its states, so that each state is committed. The generation
    of an overwrite is invisible to readers until it is complete."""
    resumable = copy.copy(stream)
    resumable.stream = copy.copy(stream.stream)
    resumable.stream.is_resumable = True
    return resumable


def _is_numbered(stream: ConfiguredStream) -> bool:
    """Return whether the catalog's generation is in force. Platforms without refreshes send zeros."""
    overwrites_all = stream.overwrites and not stream.minimum_generation_id
    return stream.generation_id is not None and not overwrites_all


def _newest(metadata: CommitMetadata) -> int:
    """Return the table's newest generation, complete or not."""
    return max(metadata.generation, 0 if metadata.refresh is None else metadata.refresh.generation)


def _newest_requested(metadata: CommitMetadata) -> int:
    """Return the platform's number of the newest generation."""
    requested = metadata.requested_generation
    return _newest(metadata) if requested is None else requested


def _refuse_older(stream: ConfiguredStream, generation: int, metadata: CommitMetadata) -> None:
    newest = _newest_requested(metadata)
    if generation < newest:
        raise OlderGenerationError(
            f"stream {str(stream.id)!r}: generation_id {generation} is older than the generation of its "
            f"table, {newest}",
            guidance="refresh the stream with a greater generation_id, or move its table away",
        )


def _refuse_incompatible(stream: ConfiguredStream, metadata: CommitMetadata) -> None:
    """Refuse to resume a refresh that was started differently: its source does not send acknowledged records
    again."""
    refresh, generation = metadata.refresh, stream.generation_id
    if refresh is None or not refresh.truncates or refresh.generation != generation:
        return
    stored = StoredStream(stream, metadata)
    if stream.minimum_generation_id == 0 or stored.has_incompatible_refresh(generation):
        raise _incompatible_refresh(stream, refresh)


def _incompatible_refresh(
    stream: ConfiguredStream, refresh: Refresh | None
) -> IncompatibleRefreshError:
    generation = None if refresh is None else refresh.generation
    return IncompatibleRefreshError(
        f"stream {str(stream.id)!r}: its unfinished refresh, generation {generation}, has another schema, "
        "key, cursor, sync mode or minimum_generation_id, and cannot be resumed with the present ones",
        guidance="refresh the stream with a greater generation_id, or resume with the former settings",
    )


PROTOCOL_SYNC_MODES = [mode.name for mode in find_modes().values() if mode.is_standard]
"""Destination sync modes that `spec` lists: a reader refuses a specification with a mode that it does not
know."""

Log = Callable[[str, str], None]
"""Function that gets a level of the protocol, and a text."""


class StreamErrors:
    """Record of the stream that an error belongs to."""

    def __init__(self) -> None:
        self._failure: tuple[BaseException, StreamId] | None = None

    @contextmanager
    def attribute_errors(self, stream: StreamId) -> Iterator[None]:
        """Attribute an error of the block to a stream."""
        try:
            yield
        except Exception as error:
            self._failure = (error, stream)
            raise

    def stream_of(self, error: BaseException) -> StreamId | None:
        """Return the stream of an error; None if it is attributed to none."""
        return self._failure[1] if self._failure is not None and self._failure[0] is error else None


class StreamSink:
    """The sink of a stream. Its writer's errors are attributed to the stream; a failed Spark start is not."""

    def __init__(
        self, stream: StreamId, spark: SparkProvider, writer: ClosableSink, errors: StreamErrors
    ):
        self._stream = stream
        self._spark = spark
        self._writer = writer
        self._errors = errors

    def write(self, segment: Segment) -> None:
        self._spark.get()
        with self._errors.attribute_errors(self._stream):
            self._writer.write(segment)

    def commit(self, checkpoint: Checkpoint) -> Committed:
        with self._errors.attribute_errors(self._stream):
            return self._writer.commit(checkpoint)

    def close(self) -> None:
        """Remove what is written and not committed."""
        self._writer.close()


class _RepeatedOverwriteWriter:
    """Writer of a stream that overwrites a complete generation again: its records start a new generation.

    If the source sends states and no record, it has resumed after its last record: this sync is the retry of
    one in which another stream failed. Then the rows stay.

    Args:
        open_writer: opens the writer of the new generation, or, given True, of the complete one.
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


class TableOpener:
    """Opens the tables of streams for one sync.

    Args:
        log: gets the notices for the user.

    Attributes:
        errors: records the stream of each error.
        staging: where the records of the sync are staged.

    Raises:
        ConfigError: the staging is in a store, or has an option, that is not supported.
    """

    def __init__(self, settings: Settings, spark: SparkProvider, log: Log):
        self._settings = settings
        self._spark = spark
        self._log = log
        self.errors = StreamErrors()
        self._run_id = str(uuid.uuid4())
        self._writers: dict[StreamId, TableWriter] = {}
        self._paths = TablePaths([settings.namespace])
        self.staging = paths.staging_of_syncs()

    def check(self, streams: Sequence[ConfiguredStream]) -> None:
        """Check that streams can be written, and choose the paths of their tables. Nothing is written.

        Raises:
            ConfigError: a stream is configured twice, or lacks what its sync mode needs.
        """
        seen: set[StreamId] = set()
        for stream in streams:
            with self.errors.attribute_errors(stream.id):
                if stream.id in seen:
                    raise ConfigError(
                        f"the catalog configures stream {str(stream.id)!r} twice",
                        guidance="remove one of the two entries from the catalog",
                    )
                seen.add(stream.id)
                _refuse_mode(stream)
                _refuse_options(stream)
                check_columns(declare_document(stream))
                if self._keeps_deleted(stream):
                    columns = from_json_schema.columns(stream.stream.json_schema)
                    refuse_own_name(str(stream.id), [column.name for column in columns])
        self._paths.add({stream.id: self._keeps_history(stream) for stream in streams})

    def open(self, stream: ConfiguredStream) -> StreamSink:
        """Return the sink of a stream, at the newest snapshot of its tables.

        Raises:
            ConfigError: another writer filled the table, or it cannot take the stream as configured.
        """
        make_private_lake(self._settings.lake)
        with self.errors.attribute_errors(stream.id):
            writer: ClosableSink = (
                _RepeatedOverwriteWriter(lambda adds: self._writer(stream, adds=adds))
                if is_repeated_overwrite(stream, self._tables(stream).metadata)
                else self._writer(stream)
            )
            return StreamSink(stream.id, self._spark, writer, self.errors)

    def change_schema(self, stream: ConfiguredStream) -> None:
        """Let the writer of a stream continue with another schema.

        Raises:
            ConfigError: its table cannot take the stream as configured.
        """
        with self.errors.attribute_errors(stream.id):
            check_columns(stream)
            self._writers[stream.id].change_schema(stream)
            self._log_schema_changes(stream)

    def is_new(self, stream: ConfiguredStream) -> bool:
        """Return whether the stream has no table yet."""
        return not self._tables(stream).main.exists

    def _writer(self, stream: ConfiguredStream, *, adds: bool = False) -> TableWriter:
        tables = self._tables(stream)
        for notice in tables.roll_back_companions(self._run_id):
            self._log("WARN", notice)
        metadata = tables.metadata
        if is_repeated_overwrite(stream, metadata):
            self._log("INFO", _describe_repeated_overwrite(stream, adds=adds))
        landed = declare_document(set_generation(stream, metadata, adds=adds))
        spec = WriteSpec(
            stream=landed,
            run_id=self._run_id,
            history=self._keeps_history(stream),
            on_schema_change=self._settings.on_schema_change,
            began=next_sync_id(metadata),
            requested_generation=find_requested_generation(stream, metadata, landed.generation_id),
            keeps_deleted=self._keeps_deleted(stream),
        )
        writer = TableWriter(self._spark, tables, spec, self.staging, locate=True)
        self._writers[stream.id] = writer
        self._log_schema_changes(stream)
        return writer

    def _log_schema_changes(self, stream: ConfiguredStream) -> None:
        for change in self._writers[stream.id].schema_changes:
            self._log("WARN", f"the schema of stream {str(stream.id)!r} has changed: {change}")

    def _tables(self, stream: ConfiguredStream) -> StreamTables:
        settings, name = self._settings, stream.id
        parents = [] if name.namespace is None else [name.namespace]
        writer = app_id([settings.namespace, *parents, name.name])
        lake, path = Location.parse(settings.lake), self._paths[name]
        tables = open_tables(lake, path, writer, history=self._keeps_history(stream))
        refuse_foreign(
            tables.main,
            f"this destination's stream {str(name)!r}",
            "give the destination another `namespace`, or move the table away",
        )
        return tables

    @contextmanager
    def transfer_documents(
        self, streams: Sequence[ConfiguredStream]
    ) -> Iterator[Mapping[StreamId, Documents]]:
        """Yield the places of the documents of streams.

        Raises:
            ConfigError: streams have documents, and there is no folder from which to take them.
        """
        streams = [stream for stream in streams if stream.stream.is_file_based]
        if not streams:
            yield {}
            return
        with DocumentTransfer(StagedFiles(_find_staging_folder())) as transfer:
            yield {
                stream.id: transfer.folder(self._tables(stream).main.storage.location)
                if stream.has_documents
                else transfer.no_folder()
                for stream in streams
            }

    def location(self, stream: ConfiguredStream) -> str:
        """Return the URI of a stream's table."""
        return self._tables(stream).main.uri

    def list_followed(self, stream: StreamId) -> list[LakeTable]:
        """Return a stream's tables, as followers of their commits get them."""
        tables, lake = self._writers[stream].tables, Location.parse(self._settings.lake)
        return [
            make_lake_table(table, lake, self._settings.namespace, kind)
            for kind, table in [(None, tables.main), *tables.companions.items()]
        ]

    def _keeps_deleted(self, stream: ConfiguredStream) -> bool:
        is_wanted = stream.mode.keeps_deleted or self._settings.keeps_deleted
        return is_wanted and stream.deduplicates and not stream.overwrites

    def _keeps_history(self, stream: ConfiguredStream) -> bool:
        return self._settings.history and stream.deduplicates


def _describe_repeated_overwrite(stream: ConfiguredStream, *, adds: bool) -> str:
    """Return the log message of a stream that overwrites a complete generation again."""
    generation = f"stream {str(stream.id)!r}: its generation {stream.generation_id} is complete"
    if adds:
        return f"{generation}, and the source sent a state and no record: the table keeps its rows"
    return f"{generation}: the records of this sync replace its rows"


def _find_staging_folder() -> Path:
    """Return the folder into which the source puts documents.

    Raises:
        ConfigError: it is not set, or is not there.
    """
    folder = Path(os.environ.get(STAGING) or DEFAULT_STAGING)
    if not folder.is_dir():
        raise ConfigError(
            f"there is no folder {folder}, from which the documents of the source are taken",
            guidance=f"set {STAGING} to one folder for the source and for this destination, or set "
            "`include_files` of all streams to false",
        )
    return folder


def _refuse_mode(stream: ConfiguredStream) -> None:
    if stream.destination_sync_mode not in find_modes():
        raise ConfigError(
            f"stream {str(stream.id)!r}: destination_sync_mode {stream.destination_sync_mode!r} is not "
            "supported",
            guidance=f"write one of {', '.join(find_modes())}",
        )


def _refuse_options(stream: ConfiguredStream) -> None:
    """Raise ConfigError if the catalog requests of a stream what this destination cannot do."""
    if stream.destination_object_name is not None:
        raise ConfigError(
            f"stream {str(stream.id)!r}: `destination_object_name` requests an object of the destination, "
            "which is not supported: the table is named by the stream",
            guidance="remove `destination_object_name` from the catalog",
        )
    if stream.generation_id is None and stream.minimum_generation_id:
        raise ConfigError(
            f"stream {str(stream.id)!r}: `minimum_generation_id` {stream.minimum_generation_id} without a "
            "`generation_id`",
            guidance="write both in the catalog, or neither",
        )
