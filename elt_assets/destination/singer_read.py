"""`target-elt`: commits the records of a Singer tap, and returns the acknowledged states.

`target` makes the read, and `pipeline.read` runs it.

Spec: Singer, targets: a STATE is printed once all records before it are durable. When a version of a stream
is activated, its records replace those of all other versions.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import BinaryIO

from msgspec import Raw

from elt_assets.destination.process import log_losses, read_messages
from elt_assets.destination.settings import Settings
from elt_assets.destination.tables import (
    IncompatibleRefreshError,
    Log,
    OlderGenerationError,
    StreamSink,
    TableOpener,
)
from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.lake.publish.followers import LakeTable
from elt_assets.lake.session import SparkProvider
from elt_assets.pipeline.read import Messages, Read, run_read
from elt_assets.protocol.catalog import (
    APPEND,
    APPEND_DEDUP,
    INCREMENTAL,
    AirbyteStream,
    ConfiguredCatalog,
    ConfiguredStream,
    StreamId,
)
from elt_assets.protocol.lines import MAX_LINE
from elt_assets.protocol.messages import Message
from elt_assets.protocol.routing import singer_runs
from elt_assets.protocol.singer import Translator
from elt_assets.runner.singer_batches import BatchFiles
from elt_assets.sync.committer import OpenSink
from elt_assets.sync.events import Checkpoint, Committed, Logged, SharedAcknowledged
from elt_assets.sync.session import StreamChanges
from elt_assets.sync.streams import StreamRules
from elt_assets.telemetry.observation import Subject

Version = tuple[str, int]
"""The name of a stream, and the number of one of its versions."""


class SingerRead(Read):
    """One read of a tap's messages on stdin.

    Args:
        log: gets a level of the Airbyte Protocol, and a text.
    """

    def __init__(self, settings: Settings, spark: SparkProvider, stdin: BinaryIO, log: Log):
        self._settings = settings
        self._spark = spark
        self._stdin = stdin
        self._log = log
        self._opener = opener = TableOpener(settings, spark, log)
        self._announced: set[str] = set()
        self._activated: set[Version] = set()
        self.subject = Subject("target-elt", opener.location)
        rules = StreamRules(shares_state=True)
        super().__init__(ConfiguredCatalog(streams=[]), opener.staging, settings.threshold, rules)

    def run(self) -> Generator[Raw, None, None]:
        """Yield the values of STATE messages, unchanged and in order, each once it is committed.

        Raises:
            EltError: the run is not complete; what the tap sent before its last state is committed.
        """
        with log_losses(self, self._log), contextlib.closing(run_read(self)) as events:
            for event in events:
                if isinstance(event, Logged):
                    self._log(event.level, event.message)
                elif isinstance(event, SharedAcknowledged):
                    for pending in event.states:
                        assert pending.state.data is not None
                        yield pending.state.data

    def list_followed(self, stream: StreamId) -> Sequence[LakeTable]:
        return self._opener.list_followed(stream)

    def expect_rows(self) -> None:
        self._spark.warm_up()

    def changes(self, open_sink: OpenSink) -> StreamChanges:
        return StreamChanges(open_sink, self._change_schema, self._configure)

    def _change_schema(self, stream: ConfiguredStream) -> None:
        self._opener.change_schema(self._set_mode(stream))

    def open_messages(self) -> Messages:
        """Yield the messages, and record which versions are activated."""
        roots, last = self._settings.batch_roots, ""
        files = BatchFiles(roots, MAX_LINE) if roots else None
        translator = Translator(read_file=files, whole_states=True)
        for message in read_messages(self._stdin, singer_runs(translator).messages):
            if not isinstance(message, Message):
                if message.stream != last and message.stream not in self._announced:
                    raise SystemFailure(
                        f"the tap sent a record of stream {message.stream!r} before its SCHEMA",
                        guidance="correct the tap; what it sent before its last state is committed",
                    )
                last = message.stream
            elif message.generation is not None:
                version = message.generation
                if version.complete:
                    self._activated.add((version.stream_descriptor.name, version.generation_id))
            yield message

    def _configure(self, stream: AirbyteStream) -> ConfiguredStream:
        """Return how a stream is synced: a later record replaces an earlier one, whatever their bookmarks."""
        if not stream.json_schema.get("properties"):
            raise ConfigError(
                f"the SCHEMA of stream {stream.name!r} has no properties: no field would be stored",
                guidance="check whether the tap discovers the fields of the stream",
            )
        described = copy.copy(stream)
        described.source_defined_cursor, described.default_cursor_field = True, None
        configured = ConfiguredStream(
            stream=described,
            sync_mode=INCREMENTAL,
            destination_sync_mode=self._mode(stream),
        )
        self._opener.check([configured])
        self._announced.add(stream.name)
        return configured

    def _mode(self, stream: AirbyteStream) -> str:
        is_keyed = bool(stream.source_defined_primary_key) and not self._settings.append_only
        return APPEND_DEDUP if is_keyed else APPEND

    def _set_mode(self, stream: ConfiguredStream) -> ConfiguredStream:
        """Return a stream with the mode that its key requires."""
        stream = copy.copy(stream)
        stream.destination_sync_mode = self._mode(stream.stream)
        return stream

    def open_sink(self, stream: ConfiguredStream) -> _VersionSink:
        """Open the sink of a stream. A key in a later SCHEMA is in force from then on.

        If the stream has no table, there are no rows to replace, and its first version is visible at once.
        """
        stream = self._set_mode(stream)
        name, version = stream.stream.name, stream.generation_id
        if version is not None and self._opener.is_new(stream):
            stream.minimum_generation_id = 0
        version_key = None if version is None else (name, version)
        return _VersionSink(self._open_version(stream), version_key, self._activated)

    def _open_version(self, stream: ConfiguredStream) -> StreamSink:
        """Open the sink of a stream.

        Raises:
            ConfigError: in Singer's words, a version cannot be written.
        """
        version = f"stream {stream.stream.name!r}: version {stream.generation_id} of the tap"
        try:
            return self._opener.open(stream)
        except OlderGenerationError:
            raise ConfigError(
                f"{version} is older than the version of the rows in its table",
                guidance="make the tap send a greater `version`, such as the time, or move the table away",
            ) from None
        except IncompatibleRefreshError:
            raise ConfigError(
                f"{version} was loaded in part, with another SCHEMA or key, and cannot be continued",
                guidance="make the tap send a new `version`, or load the former SCHEMA",
            ) from None


class _VersionSink:
    """The sink of one version of a stream. The version is complete only when it is activated."""

    def __init__(self, sink: StreamSink, version: Version | None, activated: set[Version]):
        self._version = version
        self._activated = activated
        self._sink = sink
        self.write = sink.write
        self.close = sink.close

    def commit(self, checkpoint: Checkpoint) -> Committed:
        is_whole = self._version is None or self._version in self._activated
        return self._sink.commit(replace(checkpoint, final=checkpoint.final and is_whole))
