"""The reader's side of a read by slices: what the session of a sync and its tasks do, without a lake."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from connectors.testing.process import run_process
from connectors.testing.protocols.protocol import SeenRecord
from connectors.testing.slice_reading import (
    SliceRecords,
    SlicesToRead,
    SliceToRead,
    list_arguments,
)
from elt_assets.errors import EltError
from elt_assets.protocol.catalog import ConfiguredStream, StreamId
from elt_assets.protocol.codec import decode
from elt_assets.protocol.messages import SLICES_FOLDER, Message


@dataclass(frozen=True)
class SeenSlice:
    """A slice that was read.

    Args:
        line: the line of its message.
        first: its records; `second`: those of another read of it, in another process and in another order.
    """

    stream: StreamId
    key: str
    line: int
    first: SliceRecords
    second: SliceRecords


@dataclass
class SliceReads:
    """The slices of one read by a connector: each is read twice, when the connector waits or has ended.

    Attributes:
        module: the module of the connector.
        folder: gets the files of slices.
        slices: those that were read so far.
        hasty: the line after a BARRIER that was sent before its slices were read.
    """

    module: str
    folder: Path
    config: Mapping[str, Any]
    streams: Sequence[ConfiguredStream]
    seconds: float
    slices: list[SeenSlice] = field(default_factory=list)
    hasty: int | None = None
    _waiting: list[tuple[int, Message]] = field(default_factory=list)
    _lines: int = 0

    @property
    def environment(self) -> Mapping[str, str]:
        """The variable with the folder."""
        return {SLICES_FOLDER: str(self.folder)}

    def take(self, line: bytes) -> bool:
        """Take a line of the connector; return whether it is a BARRIER."""
        self._lines += 1
        try:
            message = decode(line, whole=True)
        except EltError:  # the rules about messages report it
            return False
        if isinstance(message, Message) and message.slice is not None:
            self._waiting.append((self._lines, message))
        return isinstance(message, Message) and message.barrier is not None

    def note_haste(self) -> None:
        """Take notice that the connector has sent another line before an answer to its BARRIER."""
        if self.hasty is None:
            self.hasty = self._lines + 1

    def read(self) -> None:
        """Read the slices that wait."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        first = self._read([message for _, message in waiting])
        second = self._read([message for _, message in reversed(waiting)])
        for (line, message), *reads in zip(waiting, first, reversed(second), strict=True):
            part = message.slice
            assert part is not None
            self.slices.append(SeenSlice(part.stream_descriptor.id, part.key, line, *reads))

    def records(self) -> list[SeenRecord]:
        """Return the records of the slices; each has the line of its slice."""
        return [
            SeenRecord(part.stream, record, part.line)
            for part in self.slices
            for record in part.first.records
            if isinstance(record, dict)
        ]

    def _read(self, messages: Sequence[Message]) -> list[SliceRecords]:
        configured = {stream.id: Raw(stream.to_json()) for stream in self.streams}
        parts = [message.slice for message in messages if message.slice is not None]
        task = SlicesToRead(
            Raw(msgspec.json.encode(self.config)),
            [
                SliceToRead(
                    configured[part.stream_descriptor.id],
                    part.data,
                    None if part.file is None else str(self.folder / part.file),
                    bool(part.file_has_changes),
                )
                for part in parts
            ],
            self.module,
        )
        with tempfile.TemporaryDirectory(prefix="connector-test-") as name:
            path, stdout, stderr = (Path(name, file) for file in ("slices", "stdout", "stderr"))
            path.write_bytes(msgspec.json.encode(task))
            ended = run_process(list_arguments(path), stdout, stderr, self.seconds)
            lines = stdout.read_bytes().splitlines()
            log = stderr.read_text(errors="replace").strip().splitlines()[-1:]
        reads = [msgspec.json.decode(line, type=SliceRecords) for line in lines]
        lost = SliceRecords(error=" ".join([f"the process of a task {ended.text}", *log]))
        return [*reads, *[lost] * (len(parts) - len(reads))]
