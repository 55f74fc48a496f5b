"""The interface of a protocol."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from elt_assets.errors import EltError
from elt_assets.protocol.catalog import AirbyteStream, Catalog, ConfiguredStream, StreamId
from elt_assets.protocol.messages import (
    ConnectionStatus,
    ErrorTrace,
    EstimateTrace,
    Message,
    RawRecord,
    Specification,
    State,
    StreamStatusTrace,
    UndecodedLine,
)

EXCERPT = 300
"""Maximum number of characters of a line that is quoted."""

_SECONDS = (1e9, 1e11)
"""The times of this century in seconds since 1970; as milliseconds, they are before 1974."""
_MICROSECONDS = 1e14

Parse = Callable[[bytes], Iterable["RawRecord | Message"]]
"""Function that returns the messages of one line. It raises EltError for a malformed message."""
Missing = Callable[[Message], Iterable[str]]
"""Function that returns the required properties that a message does not have."""


@dataclass(frozen=True)
class SeenRecord:
    """A record. `data`: the decoded record; `line`: the number of its line, from 1."""

    stream: StreamId
    data: dict[str, Any]
    line: int


@dataclass(frozen=True)
class SeenMessage:
    """A message other than a record."""

    message: Message
    line: int


@dataclass(frozen=True)
class Flaw:
    """A line that is not a message, or a message without a required property."""

    line: int
    text: str


@dataclass(frozen=True)
class Span:
    """The records of one stream in the output of a process.

    `count`: their number; `first` and `last`: the lines of the first and the last of them.
    """

    count: int
    first: int
    last: int


@dataclass
class Transcript:
    """The output of a process.

    Args:
        messages: the messages other than records.
        records: the records.
        spans: the records of each stream.
        stray: lines that are not messages.
        incomplete: messages without a required property.
        odd_times: messages whose `emitted_at` is not in milliseconds.
    """

    messages: list[SeenMessage] = field(default_factory=list)
    records: list[SeenRecord] = field(default_factory=list)
    spans: dict[StreamId, Span] = field(default_factory=dict)
    stray: list[Flaw] = field(default_factory=list)
    incomplete: list[Flaw] = field(default_factory=list)
    odd_times: list[Flaw] = field(default_factory=list)

    @property
    def specifications(self) -> list[Specification]:
        return [seen.message.spec for seen in self.messages if seen.message.spec is not None]

    @property
    def connection_statuses(self) -> list[ConnectionStatus]:
        statuses = (seen.message.connectionStatus for seen in self.messages)
        return [status for status in statuses if status is not None]

    @property
    def catalogs(self) -> list[Catalog]:
        return [seen.message.catalog for seen in self.messages if seen.message.catalog is not None]

    @property
    def errors(self) -> list[ErrorTrace]:
        errors = (seen.message.reported_error for seen in self.messages)
        return [error for error in errors if error is not None]

    @property
    def states(self) -> list[tuple[State, int]]:
        """The states, each with its line."""
        states = ((seen.message.state, seen.line) for seen in self.messages)
        return [(state, line) for state, line in states if state is not None]

    @property
    def statuses(self) -> list[tuple[StreamStatusTrace, int]]:
        """The stream statuses, each with its line."""
        traces = ((seen.message.trace, seen.line) for seen in self.messages)
        return [(t.stream_status, line) for t, line in traces if t is not None and t.stream_status]

    @property
    def estimates(self) -> list[tuple[EstimateTrace, int]]:
        """The estimates, each with its line."""
        traces = ((seen.message.trace, seen.line) for seen in self.messages)
        return [(t.estimate, line) for t, line in traces if t is not None and t.estimate]

    @property
    def has_barriers(self) -> bool:
        """Return whether the process has waited for its slices to be read."""
        return any(seen.message.barrier is not None for seen in self.messages)

    def add_message(self, message: Message, line: int, missing: Sequence[str]) -> None:
        """Add a message. `missing`: the required properties that it lacks."""
        if message.record is None:
            self.messages.append(SeenMessage(message, line))
        if missing:
            text = f"a {message.type} message without {' and '.join(missing)}"
            self.incomplete.append(Flaw(line, text))

    def add_record(self, record: SeenRecord) -> None:
        """Add a record of the output."""
        self.records.append(record)
        span = self.spans.get(record.stream, Span(0, record.line, record.line))
        self.spans[record.stream] = Span(span.count + 1, span.first, record.line)


def read_transcript(lines: Iterable[bytes], parse: Parse, missing: Missing) -> Transcript:
    """Return the messages and the records of an output. Empty lines are ignored.

    Args:
        parse: returns the messages of a line.
        missing: returns the required properties that a message lacks.
    """
    transcript = Transcript()
    for number, line in enumerate(lines, 1):
        text = line.rstrip(b"\r\n")
        if not text.strip():
            continue
        try:
            for message in _messages(text, parse):
                transcript.odd_times += _odd_times(message, number)
                record = _record(message, number)
                if record is not None:
                    transcript.add_record(record)
                if isinstance(message, Message):
                    transcript.add_message(message, number, list(missing(message)))
        except EltError as error:
            transcript.stray.append(Flaw(number, f"{error.message}: {excerpt(text)}"))
    return transcript


def _messages(line: bytes, parse: Parse) -> Iterator[RawRecord | Message]:
    """Yield the messages of a line.

    Raises:
        EltError: the line is not a message, or not valid JSON.
    """
    for message in parse(line):
        if isinstance(message, UndecodedLine):
            raise EltError("not a message of the protocol")
        _require_json(line)
        yield message


def _odd_times(message: RawRecord | Message, line: int) -> Iterator[Flaw]:
    """Yield a flaw if the `emitted_at` of a message is in another unit than milliseconds: as such, the times
    of this century are within these limits in seconds, and above them in microseconds."""
    body = message if isinstance(message, RawRecord) else message.record or message.trace
    emitted_at = None if body is None else body.emitted_at
    if emitted_at is None:
        return
    if _SECONDS[0] <= emitted_at < _SECONDS[1]:
        yield Flaw(line, f"`emitted_at` {emitted_at:.0f}, which seems to be in seconds")
    elif emitted_at >= _MICROSECONDS:
        yield Flaw(
            line, f"`emitted_at` {emitted_at:.0f}, which seems to be in micro- or nanoseconds"
        )


def _require_json(line: bytes) -> None:
    """Raise EltError if a line is not valid JSON; `parse` repairs common deviations."""
    try:
        msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise EltError(f"not valid JSON ({error})") from None


def _record(message: RawRecord | Message, line: int) -> SeenRecord | None:
    """Return the record of a message; None if it is a message of another type.

    Raises:
        EltError: the record is not a JSON object.
    """
    record = message if isinstance(message, RawRecord) else message.record
    if record is None:
        return None
    try:
        data = msgspec.json.decode(record.data, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise EltError(f"a record that is not a JSON object ({error})") from None
    return SeenRecord(StreamId(record.stream, record.namespace), data, line)


def excerpt(line: bytes) -> str:
    """Return the beginning of a line, for a message."""
    text = line[: 4 * EXCERPT].decode("utf-8", "replace")
    return text if len(text) <= EXCERPT else f"{text[:EXCERPT]}…"


class Protocol(ABC):
    """A protocol of connectors.

    Attributes:
        name: the name, as the report has it.
        subject: the kind of program, for messages: "Singer taps".
        has_spec: whether a connector must print a specification.
        has_check: whether a connector must check its config on request.
        has_schema_messages: whether a read must send the schema of a stream before its records.
        has_help: whether the verb `help` tells how the arguments are given, where there is no specification.
    """

    name: ClassVar[str]
    subject: ClassVar[str]
    has_spec: ClassVar[bool]
    has_check: ClassVar[bool]
    has_schema_messages: ClassVar[bool]
    has_help: ClassVar[bool]

    @abstractmethod
    def arguments(self, verb: str, files: Mapping[str, Path]) -> list[str]:
        """Return the arguments of a command. `files`: the files that are arguments, by name."""

    @abstractmethod
    def catalog(self, streams: Sequence[ConfiguredStream]) -> bytes:
        """Return the contents of the catalog file that selects these streams.

        Raises:
            ConfigError: a stream cannot be selected.
        """

    def selectable_fields(self, stream: AirbyteStream) -> Sequence[str]:
        """Return the fields of a stream that the user may leave out, and the connector must then not send."""
        del stream
        return ()

    @abstractmethod
    def state(self, states: Sequence[State]) -> bytes | None:
        """Return the contents of the state file; None if there is no state."""

    @abstractmethod
    def output(self, verb: str, stdout: Path, streams: Sequence[ConfiguredStream]) -> Transcript:
        """Return the messages and the records that a command printed. `streams`: those that it read."""

    @abstractmethod
    def record_schema(self, stream: AirbyteStream) -> Mapping[str, Any]:
        """Return the JSON schema that the records of a stream must fit, as the connector declares it."""
