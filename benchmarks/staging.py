"""A session over the messages of the stub: with sinks that count, or that keep the staged segments."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.measure import CommandFailed
from benchmarks.messages import HERE, MessageSet
from elt_assets.protocol.catalog import ConfiguredCatalog, ConfiguredStream
from elt_assets.protocol.messages import Received
from elt_assets.runner.connector import Connector
from elt_assets.runner.kinds import KINDS
from elt_assets.runner.source_kind import ConnectorSpec
from elt_assets.sync.events import Checkpoint, Committed
from elt_assets.sync.segments import Segment
from elt_assets.sync.session import Session

STUB = HERE / "source_stub"


class Counted:
    """A sink that counts."""

    def __init__(self) -> None:
        self._waiting = 0
        self.records = 0

    def write(self, segment: Segment) -> None:
        self._waiting += segment.records

    def commit(self, checkpoint: Checkpoint) -> Committed:
        done, self._waiting = self._waiting, 0
        self.records += done
        return Committed(1, 1, 1, done, 0, 0)


@dataclass
class Kept(Counted):
    """A sink that keeps the segments, in a folder of the same disk as the staging folder."""

    folder: Path
    segments: list[Segment] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.folder.mkdir(parents=True)

    def write(self, segment: Segment) -> None:
        super().write(segment)
        path = self.folder / f"{len(self.segments):04d}.jsonl"
        os.link(segment.path, path)
        self.segments.append(replace(segment, path=path))


def messages(
    file: Path, streams: Sequence[ConfiguredStream], workdir: Path, times: int = 1
) -> Iterable[Received]:
    """The messages of a file, as a connector sends them so many times through a pipe."""
    command = ["env", f"BENCH_MESSAGES={file}", f"BENCH_TIMES={times}", str(STUB)]
    connector = Connector(ConnectorSpec(KINDS["command"], command, {}, workdir, workdir))
    return connector.read(ConfiguredCatalog(streams=list(streams)), runs=True)


def route(
    file: Path,
    streams: Sequence[ConfiguredStream],
    sinks: Sequence[Counted],
    staging: Path,
    times: int = 1,
) -> int:
    """Route the messages of a file to the sinks of their streams, and return the number of records."""
    staging.mkdir()
    catalog = ConfiguredCatalog(streams=list(streams))
    by_stream = {stream.id: sink for stream, sink in zip(streams, sinks, strict=True)}
    session = Session(catalog, by_stream, staging)
    for _ in session.run(messages(file, streams, staging, times)):
        pass
    return sum(sink.records for sink in sinks)


def stage(file: Path, kind: MessageSet, folder: Path, records: int) -> list[Segment]:
    """Return the segments that a session stages of the messages of one stream.

    Raises:
        CommandFailed: they have another number of records.
    """
    kept = Kept(folder / "segments")
    found = route(file, [kind.stream], [kept], folder / "staging")
    if found != records:
        raise CommandFailed(f"{found:,} records were staged of {records:,}")
    return kept.segments
