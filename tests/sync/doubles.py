"""Messages for a session, and sinks that keep their input in memory."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from elt_assets.errors import EltError, SystemFailure, TransientError
from elt_assets.protocol.catalog import (
    APPEND,
    INCREMENTAL,
    AirbyteStream,
    ConfiguredCatalog,
    ConfiguredStream,
    StreamId,
)
from elt_assets.protocol.codec import decode
from elt_assets.protocol.messages import NULL, Form, Message, RawRecord, Received
from elt_assets.protocol.singer import decode_record
from elt_assets.sync.events import (
    Acknowledged,
    Checkpoint,
    Committed,
    Logged,
    SessionEvent,
    SharedAcknowledged,
)
from elt_assets.sync.record_filter import RecordFilter
from elt_assets.sync.segments import Piece, Segment
from elt_assets.sync.session import Session, Threshold
from elt_assets.sync.streams import StreamRules

Sent = RawRecord | Message
"""A message that a connector sends."""


@dataclass(frozen=True)
class Staged:
    """A record in a segment. `place`: its position in the stream within the sync."""

    data: Any
    place: int
    meta: Any


def staged(segment: Segment) -> list[Staged]:
    """The records of a segment; its pieces follow each other."""
    with segment.path.open("rb") as file:
        records = []
        for piece in segment.pieces:
            assert file.tell() == piece.offset
            lines = [file.readline() for _ in range(piece.records)]
            assert sum(map(len, lines)) == piece.size
            for number, line in enumerate(lines):
                data, meta = _parts(piece, line)
                records.append(Staged(json.loads(data), piece.first + number, json.loads(meta)))
        assert file.read() == b""
    return records


def _parts(piece: Piece, line: bytes) -> tuple[bytes, bytes]:
    """The data and the meta of a line."""
    if piece.form is Form.ROWS:
        parts = msgspec.json.decode(line, type=dict[str, Raw])
        return bytes(parts["data"]), bytes(parts.get("meta", NULL))
    record = decode_record(line[:-1]) if piece.form is Form.SINGER else decode(line[:-1])
    assert isinstance(record, RawRecord)
    assert (record.stream, record.namespace) == (piece.stream, piece.namespace)
    return bytes(record.data), bytes(record.meta)


class MemorySink:
    """A table in memory: `rows` and `state` are what it has committed.

    Args:
        fail_at: which of its calls fails, counted from 0.
    """

    def __init__(self, fail_at: int | None = None):
        self.rows: list[Any] = []
        self.state: Any = None
        self.commits: list[Checkpoint] = []
        self.segments: list[Segment] = []
        self._pending: list[Any] = []
        self._fail_at = fail_at
        self._calls = 0

    def write(self, segment: Segment) -> None:
        self._call()
        records = staged(segment)
        assert (len(records), segment.path.stat().st_size) == (segment.records, segment.size)
        self.segments.append(segment)
        self._pending += [record.data for record in records]

    def commit(self, checkpoint: Checkpoint) -> Committed:
        self._call()
        records, self._pending = self._pending, []
        self.rows += records
        self.commits.append(checkpoint)
        if checkpoint.states:
            self.state = cursor(checkpoint)
        return Committed(len(self.commits), 1, len(self.commits), len(records), 0, 0)

    @property
    def numbers(self) -> list[int]:
        return [row["n"] for row in self.rows]

    def _call(self) -> None:
        self._calls += 1
        if self._calls - 1 == self._fail_at:
            raise SystemFailure("the sink failed")


def cursor(checkpoint: Checkpoint) -> Any:
    """The value of a checkpoint's last state."""
    state = checkpoint.states[-1]
    blob = state.data if state.stream is None else state.stream.stream_state
    if state.global_ is not None:
        blob = state.global_.shared_state
    assert blob is not None
    return json.loads(bytes(blob))


def record(number: int, stream: str = "a", **fields: Any) -> Sent:
    data = json.dumps({"n": number, **fields}).encode()
    return RawRecord(stream, Raw(data), emitted_at=1_700_000_000_000 + number)


def message(kind: str, body: Any) -> Sent:
    name = {"LOG": "log", "STATE": "state", "TRACE": "trace"}[kind]
    return Message.from_json(json.dumps({"type": kind, name: body}))


def state(value: Any, stream: str = "a") -> Sent:
    stream_state = {"stream_descriptor": {"name": stream}, "stream_state": value}
    return message("STATE", {"type": "STREAM", "stream": stream_state})


def shared(value: Any, streams: Sequence[str] = (), records: float | None = None) -> Sent:
    """A GLOBAL state; `records`: how many the source says that it sent since the one before."""
    states = [{"stream_descriptor": {"name": name}, "stream_state": {}} for name in streams]
    stats = {} if records is None else {"sourceStats": {"recordCount": records}}
    body = {"shared_state": value, "stream_states": states}
    return message("STATE", {"type": "GLOBAL", "global": body, **stats})


def status(value: str, stream: str = "a") -> Sent:
    body = {"stream_descriptor": {"name": stream}, "status": value}
    return message("TRACE", {"type": "STREAM_STATUS", "stream_status": body})


def error(text: str, stream: str | None = None, kind: str = "config_error") -> Sent:
    body: dict[str, Any] = {"message": text, "failure_type": kind}
    if stream is not None:
        body["stream_descriptor"] = {"name": stream}
    return message("TRACE", {"type": "ERROR", "error": body})


def catalog(
    streams: Sequence[str] = ("a",),
    sync_mode: str = INCREMENTAL,
    policy: str = APPEND,
    *,
    is_resumable: bool | None = None,
) -> ConfiguredCatalog:
    return ConfiguredCatalog(
        streams=[
            ConfiguredStream(
                stream=AirbyteStream(name=name, json_schema={}, is_resumable=is_resumable),
                sync_mode=sync_mode,
                destination_sync_mode=policy,
                cursor_field=["n"],
            )
            for name in streams
        ]
    )


def namespaced(*names: tuple[str, str | None]) -> ConfiguredCatalog:
    configured = catalog([name for name, _ in names])
    for stream, (_, namespace) in zip(configured.streams, names, strict=True):
        stream.stream.namespace = namespace
    return configured


Messages = Iterable[Received]
EAGER = Threshold(rows=1)


@dataclass
class Sync:
    """A sync run to its end, and what came of it."""

    folder: Path
    sinks: Mapping[str, MemorySink]
    threshold: Threshold = EAGER
    configured: ConfiguredCatalog | None = None
    filters: Mapping[StreamId, RecordFilter] = field(default_factory=dict)
    shares_state: bool = False
    own_states: Collection[StreamId] = ()
    sliced: Collection[StreamId] = (StreamId("a"),)
    events: list[SessionEvent] = field(default_factory=list)
    failure: EltError | None = None

    def run(self, messages: Messages) -> Sync:
        configured = self.configured or catalog(list(self.sinks))
        sinks = {StreamId(name): sink for name, sink in self.sinks.items()}
        session = Session(
            configured,
            sinks,
            self.folder,
            self.threshold,
            StreamRules(
                filters=self.filters,
                shares_state=self.shares_state,
                own_states=self.own_states,
                sliced=self.sliced,
            ),
        )
        try:
            self.events.extend(session.run(messages))
        except EltError as failure:
            self.failure = failure
        return self

    def acknowledged(self, stream: str = "a") -> list[Any]:
        """The states acknowledged, by their value."""
        found = (event for event in self.events if isinstance(event, Acknowledged))
        states = [event.state for event in found if event.stream.name == stream]
        return [cursor(Checkpoint((each,), final=False)) for each in states if each is not None]

    def shared(self) -> list[Any]:
        """The shared states acknowledged, by their value."""
        found = (event for event in self.events if isinstance(event, SharedAcknowledged))
        held = [each.state for event in found for each in event.states]
        return [cursor(Checkpoint((state,), final=False)) for state in held]

    def logs(self) -> str:
        return "\n".join(event.message for event in self.events if isinstance(event, Logged))

    def left_behind(self) -> list[Path]:
        return [path for path in self.folder.rglob("*") if path.is_file()]


def failing(messages: Messages, failure: Exception | None = None) -> Iterator[Received]:
    yield from messages
    raise failure or TransientError("the source failed")


def numbered(count: int, start: int = 0) -> list[Sent]:
    return [record(number) for number in range(start, start + count)]
