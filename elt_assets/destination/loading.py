"""A Singer tap's lines in, the states whose records are committed out.

spec: Singer, targets: a STATE is printed once all records before it are durable; the records of a new version
of a stream replace those of others when it is activated.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from typing import BinaryIO

from msgspec import Raw

from elt_assets import paths
from elt_assets.destination.opening import Blame, Log, Opener, StreamSink
from elt_assets.destination.settings import Settings
from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.lake.spark.session import SparkProvider
from elt_assets.pipeline.stdin import Sent, messages
from elt_assets.pipeline.sync import Messages, Sync, SyncPlan
from elt_assets.protocol.airbyte.catalog import (
    INCREMENTAL,
    AirbyteStream,
    ConfiguredCatalog,
    ConfiguredStream,
)
from elt_assets.protocol.airbyte.lines import MAX_LINE
from elt_assets.protocol.airbyte.messages import Message, RawRecord
from elt_assets.protocol.airbyte.sync_modes import APPEND, APPEND_DEDUP
from elt_assets.protocol.singer.messages import Translator
from elt_assets.runner.process.singer_batches import BatchFiles
from elt_assets.sync.events import Checkpoint, Committed, Logged, SessionEvent, SharedAcknowledged

Version = tuple[str, int]
"""A stream and the number of its version."""


class Load:
    """One run of a tap.

    Args:
        log: told a level, as in the Airbyte Protocol, and a text.
    """

    def __init__(self, settings: Settings, spark: SparkProvider, log: Log):
        self._settings = settings
        self._spark = spark
        self._log = log
        self._opener = Opener(settings, spark, log, Blame())
        self._known: dict[str, ConfiguredStream] = {}
        self._activated: set[Version] = set()

    def run(self, stdin: BinaryIO) -> Generator[Raw, None, None]:
        """The values of STATE messages, to the letter and in order, each once it is committed.

        Raises:
            EltError: the run is not complete; what lies before the last state is committed.
        """
        self._spark.warm_up()
        roots = self._settings.batch_roots
        files = BatchFiles(roots, MAX_LINE) if roots else None
        translator = Translator(read_file=files, whole_states=True)
        plan = SyncPlan(
            catalog=ConfiguredCatalog(streams=[]),
            read=lambda: self._noted(messages(stdin, translator.messages)),
            open_sink=self._open,
            staging=paths.staging(),
            threshold=self._settings.threshold,
            together=True,
            reopens=True,
            configure=self._configured,
        )
        with contextlib.closing(Sync(plan).run()) as events:
            for event in events:
                yield from self._told(event)

    def _told(self, event: SessionEvent) -> Iterator[Raw]:
        if isinstance(event, Logged):
            self._log(event.level, event.message)
        elif isinstance(event, SharedAcknowledged):
            for held in event.states:
                assert held.state.data is not None
                yield held.state.data

    def _noted(self, sent: Iterable[Sent]) -> Messages:
        """The messages; which versions are activated is remembered."""
        known, last = self._known, ""
        for message in sent:
            if type(message) is RawRecord:
                if message.stream != last and message.stream not in known:
                    raise SystemFailure(
                        f"the tap sent a record of stream {message.stream!r} before its SCHEMA",
                        guidance="this is a defect of the tap; what lies before its last state is kept",
                    )
                last = message.stream
            elif isinstance(message, Message) and message.generation is not None:
                told = message.generation
                if told.complete:
                    self._activated.add((told.stream_descriptor.name, told.generation_id))
            yield message

    def _configured(self, stream: AirbyteStream) -> ConfiguredStream:
        """How a stream is synced: what comes later counts, be its bookmark what it may."""
        if not stream.json_schema.get("properties"):
            raise ConfigError(
                f"the SCHEMA of stream {stream.name!r} has no properties: nothing would be kept",
                guidance="see whether the tap can discover the stream's fields",
            )
        found = copy.copy(stream)
        found.source_defined_cursor, found.default_cursor_field = True, None
        configured = ConfiguredStream(
            stream=found,
            sync_mode=INCREMENTAL,
            destination_sync_mode=self._mode(stream),
        )
        self._known[stream.name] = configured
        self._opener.check(list(self._known.values()))
        return configured

    def _mode(self, stream: AirbyteStream) -> str:
        is_keyed = bool(stream.source_defined_primary_key) and not self._settings.append_only
        return APPEND_DEDUP if is_keyed else APPEND

    def _open(self, stream: ConfiguredStream) -> _VersionedSink:
        """Where there are no rows to be replaced, those of the first version are seen at once. A key that
        comes with a later SCHEMA counts from there on."""
        stream = copy.copy(stream)
        stream.destination_sync_mode = self._mode(stream.stream)
        name, version = stream.stream.name, stream.generation_id
        if version is not None and self._opener.is_new(stream):
            stream.minimum_generation_id = 0
        told = None if version is None else (name, version)
        return _VersionedSink(self._opener.open(stream), told, self._activated)


class _VersionedSink:
    """A sink of one version of a stream, which is complete when it is activated and not before."""

    def __init__(self, sink: StreamSink, version: Version | None, activated: set[Version]):
        self._version = version
        self._activated = activated
        self._sink = sink
        self.write = sink.write
        self.close = sink.close

    def commit(self, checkpoint: Checkpoint) -> Committed:
        is_whole = self._version is None or self._version in self._activated
        return self._sink.commit(replace(checkpoint, final=checkpoint.final and is_whole))
