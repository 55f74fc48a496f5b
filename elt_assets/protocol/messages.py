"""The messages of the Airbyte Protocol, version 0.18, and what a log shows of them.

Used by all packages that have to do with messages, and by connectors; `elt` takes `printable`.

Enumerations are plain strings here: a connector may use members that this project does not have yet, and
they must not make a sync fail. A message of a connector cannot forge a line of a log: control characters,
line breaks too, are escaped in the first line (`log_line`); the lines of a stack trace and of an error's
details follow it, each indented.

Spec: Airbyte Protocol, Messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any

import msgspec
from msgspec import Raw

from elt_assets.protocol.catalog import Catalog, StreamDescriptor
from elt_assets.protocol.wire import Wire

STARTED = "STARTED"
RUNNING = "RUNNING"
COMPLETE = "COMPLETE"
INCOMPLETE = "INCOMPLETE"
"""The statuses of a stream in a STREAM_STATUS trace: the read starts, has data, has succeeded, has failed."""

NULL = Raw(b"null")
Number = int | float
"""A JSON number. Both types are kept, so that `1` and `1.0` are forwarded unchanged."""


class RawRecord(msgspec.Struct, gc=False):
    """A RECORD for fast processing: it is routed by name, and its data is never decoded.

    It is not a `Wire`: collecting unknown properties would cost more than all other processing of a record.
    `Message.from_json` returns the lossless `Record`.
    """

    stream: str
    data: Raw
    emitted_at: Number | None = None
    namespace: str | None = None
    meta: Raw = NULL
    file_reference: Raw = NULL  # see `message_rules.FileReference`


class Form(Enum):
    """The form of staged lines of records."""

    ROWS = "rows"
    """The data of a record, with the properties of this project."""
    AIRBYTE = "airbyte"
    """A RECORD message of the Airbyte Protocol."""
    SINGER = "singer"
    """A RECORD message of Singer."""


@dataclass(frozen=True, slots=True)
class RecordLines:
    """Consecutive RECORD lines of one stream as received. Their content is not decoded, and not checked."""

    form: Form  # AIRBYTE or SINGER
    # `stream`, `namespace`: the stream that they belong to, as in a `RawRecord`.
    stream: str
    namespace: str | None
    sent_name: str  # the name of the stream in the lines; a Singer tap may use another one
    lines: bytes  # whole lines; each ends with a newline
    count: int  # the number of lines


class Record(Wire):
    """A RECORD with all its properties."""

    stream: str
    data: Raw
    emitted_at: Number | None = None  # milliseconds since the epoch
    namespace: str | None = None
    meta: Raw | None = None
    file_reference: Raw | None = None


class StateStats(Wire):
    """The numbers of records between the previous state and this one.

    Both states are of the same stream, or both are shared. Spec: AirbyteStateStats. The protocol declares the
    numbers as doubles, so `5.0` is accepted too.
    """

    recordCount: Number | None = None
    rejectedRecordCount: Number | None = None


class StreamState(Wire):
    """The state of one stream."""

    stream_descriptor: StreamDescriptor
    stream_state: Raw | None = None


class GlobalState(Wire):
    """The states of streams, and what they share."""

    stream_states: list[StreamState]
    shared_state: Raw | None = None
    # Each entry of `stream_states` holds for its stream alone, and entries of different states can be
    # combined, since the shared state stays the same. This project's connectors send it.
    independent: bool | None = None


class State(Wire, weakref=True):
    """A checkpoint. The values that the source defines are kept byte for byte.

    A state without a `type` is LEGACY.

    Spec: State & Checkpointing, V2.
    """

    type: str | None = None
    stream: StreamState | None = None
    global_: GlobalState | None = msgspec.field(default=None, name="global")
    data: Raw | None = None
    sourceStats: StateStats | None = None
    destinationStats: StateStats | None = None

    @property
    def is_independent(self) -> bool:
        """Return whether it is a GLOBAL state whose entries hold for their streams alone."""
        return self.global_ is not None and bool(self.global_.independent)

    @property
    def text(self) -> str:
        r"""The state as the text that is stored: its JSON, byte for byte.

        A byte that is not UTF-8, which no text can have, is the escape by which Python means it: `\udcff` for
        0xFF. A source in Python decodes it to the text that it had.
        """
        text = self.to_json().decode("utf-8", "surrogateescape")
        return text.encode("utf-8", "backslashreplace").decode()


class Log(Wire):
    """The body of a LOG. Spec: AirbyteLogMessage."""

    level: str
    message: str
    stack_trace: str | None = None


class Specification(Wire):
    """The specification of a connector. Spec: Actor Specification."""

    connectionSpecification: dict[str, Any]
    protocol_version: str | None = None
    documentationUrl: str | None = None
    changelogUrl: str | None = None
    supportsIncremental: bool | None = None
    supportsNormalization: bool | None = None
    supportsDBT: bool | None = None
    supported_destination_sync_modes: list[str] | None = None
    advanced_auth: Raw | None = None


class ConnectionStatus(Wire):
    """The answer of the verb `check`. Spec: AirbyteConnectionStatus."""

    status: str
    message: str | None = None

    @property
    def succeeded(self) -> bool:
        return self.status == "SUCCEEDED"


class ErrorTrace(Wire):
    """The error of a TRACE. Spec: AirbyteErrorTraceMessage. Some connectors omit `message`."""

    message: str | None = None
    internal_message: str | None = None
    stack_trace: str | None = None
    failure_type: str | None = None
    stream_descriptor: StreamDescriptor | None = None

    @property
    def text(self) -> str:
        """The error's description, in one sentence if the connector sends one."""
        return self.message or self.internal_message or "an error without a message"


class UnreadableError(ErrorTrace):
    """The error of a malformed TRACE whose stream cannot be read: it may be any stream of the read."""


def root_error(before: ErrorTrace | None, after: ErrorTrace | None) -> ErrorTrace | None:
    """Return the one of two successive errors that is the cause of a failed read.

    It is the first one, except that an error with a stream takes precedence over one without: airbyte-cdk
    ends every failed read with a combined error that has no stream and no useful `failure_type`.
    """
    if before is None or after is None:
        return before or after
    is_more_specific = before.stream_descriptor is None and after.stream_descriptor is not None
    return after if is_more_specific else before


class EstimateTrace(Wire):
    """The estimated size of a read. Spec: AirbyteEstimateTraceMessage. Type SYNC has no stream."""

    type: str
    name: str | None = None
    namespace: str | None = None
    row_estimate: Number | None = None
    byte_estimate: Number | None = None


class StreamStatusReason(Wire):
    """The reason of a stream status, as a limit of the source's requests."""

    type: str
    rate_limited: Raw | None = None


class StreamStatusTrace(Wire):
    """The status of a stream. Spec: AirbyteStreamStatusTraceMessage."""

    stream_descriptor: StreamDescriptor
    status: str
    reasons: list[StreamStatusReason] | None = None


class AnalyticsTrace(Wire):
    """A figure for the maintainers of a connector. Spec: AirbyteAnalyticsTraceMessage."""

    type: str
    value: str | None = None


class Trace(Wire):
    """The body of a TRACE: one of an error, an estimate, a stream status and a figure."""

    type: str
    emitted_at: Number | None = None
    error: ErrorTrace | None = None
    estimate: EstimateTrace | None = None
    stream_status: StreamStatusTrace | None = None
    analytics: AnalyticsTrace | None = None

    @property
    def reported_error(self) -> ErrorTrace | None:
        """The error of an ERROR trace, even if the trace was sent without a body; None for other traces."""
        return self.error or (ErrorTrace() if self.type == "ERROR" else None)


class ConnectorConfig(Wire):
    """A whole config, which a connector has changed."""

    config: dict[str, Any]


class Control(Wire):
    """The body of a CONTROL. Spec: AirbyteControlMessage."""

    type: str
    emitted_at: Number | None = None
    connectorConfig: ConnectorConfig | None = None


class DestinationCatalog(Wire):
    """The answer of the verb `discover` of a destination."""

    operations: list[Raw] | None = None


class StreamNews(Wire):
    """The answer of the verb `probe` for one stream."""

    stream_descriptor: StreamDescriptor
    # Whether the source has new data after the state of the stream; None if the source cannot determine this.
    has_news: bool | None = None


class News(Wire):
    """The answer of the verb `probe`, which this project's connectors have in addition to the protocol's."""

    streams: list[StreamNews]


class Partition(Wire):
    """A partition of a stream, in the answer of the verb `partitions`.

    This project's connectors have that verb in addition to the protocol's. It sends one such message for each
    partition of each configured stream.
    """

    stream_descriptor: StreamDescriptor
    key: str  # the name of the partition, unique in its stream and the same in every answer
    # A JSON object, kept byte for byte. `read` returns the records of this partition alone if the configured
    # stream has `"partitions": [context]`.
    context: Raw


class ComparedColumn(Wire):
    """A column in a comparison. `type`: which texts its values have in the hash (see `row_hash`)."""

    name: str
    type: str


class Comparison(Wire):
    """What a source says of a stream before its ranges, in the answer of the verb `compare`.

    This project's connectors have that verb in addition to the protocol's. The configured stream asks for it
    (`COMPARE`). The keys and sums come in `KeyRange` messages after this one, all of one snapshot.
    """

    stream_descriptor: StreamDescriptor
    key: list[str]  # the columns of the key, in the order in which rows are ordered
    key_types: list[str]  # their types, as in `ComparedColumn`
    columns: list[ComparedColumn]  # the other columns that are hashed, in the order of the hash
    left_out: dict[str, str]  # the columns that are not hashed, and why
    # A row that is changed after the snapshot gets a greater value in the column `cursor` than `position`;
    # null if the source knows none.
    position: Raw | None = None
    cursor: str | None = None
    # The greatest value of `cursor` of rows that are counted, in the form of a key's value; null if all are.
    # Those with this value are counted too, unless `is_open`. Rows without a value are counted.
    until: Raw | None = None
    is_open: bool | None = None


Key = list[Any]
"""The values of the columns of a key, as JSON: numbers, texts, true and false as they are; others as an
object with their type: `{"date": "2026-01-31"}`, `{"datetime": …}`, `{"decimal": …}`, `{"hex": …}`."""


class KeyRange(Wire):
    """The rows of a stream between two keys, in the answer of the verb `compare`."""

    stream_descriptor: StreamDescriptor
    rows: int
    hash: str  # the sum of their hashes modulo 2^64, as digits (see `row_hash`)
    after: Raw | None = None  # rows have a greater key than this `Key`; null for the first range
    until: Raw | None = None  # and this `Key` at most; null for the last range
    # If keys were asked for: a list of [key, hash, value] of each row: its `Key`, its hash as digits, and its
    # value of `Comparison.cursor` in the form of a key's value. Rows beyond `Comparison.until` are here too,
    # though not in `rows` and `hash`.
    keys: Raw | None = None

    def list_keys(self) -> list[tuple[Key, str, Any]]:
        """Return `keys`, decoded; none if they were not asked for."""
        return msgspec.json.decode(self.keys or b"[]", type=list[tuple[Key, str, Any]])


COMPARE = "compare"
"""The property of a configured stream by which `compare` is asked for ranges or keys."""
KEYS = "keys"
"""The property of a configured stream with the keys of the only rows to read, each a `Key`."""
COLUMNS = "columns"
"""The property of a configured stream with the names of the only columns to read, besides its key."""
UNDECLARED_COLUMNS = "undeclared"
"""The property of a configured stream by which a source is asked for the columns that the catalog does not
have, but for those of the list that is its value. Sources that send all columns in any case ignore it."""
STOPS_AT_UNDECLARED = "stops_at_undeclared"
"""The property of a configured stream whose sync stops before a record with a value of such a column: a
source that reads a log of changes sends a state before the first transaction that shows one."""


class Slice(Wire):
    """A part of a stream that tasks read, in place of its records.

    This project's connectors send it if the configured stream has `"slices": true` (`SLICES`). A STATE after
    it covers its records, as it covers those of RECORD messages.

    It is data: it names no code that reads it, and no place of a file. The reader knows the program of the
    source, and gives it the folder of its files (`SLICES_FOLDER`).
    """

    stream_descriptor: StreamDescriptor
    key: str  # what names the slice in logs and errors
    data: Raw  # a JSON object that the source has made for itself
    row_estimate: Number | None = None  # about how many rows it has; None if that is unknown
    # The path, below `SLICES_FOLDER`, of an Arrow stream with the rows, which tasks read and not the source;
    # None for the rows that the source gives for `data`.
    file: str | None = None
    # Whether the last column of the file has the changes of the rows, and is no field.
    file_has_changes: bool | None = None


SLICES_FOLDER = "CONNECTOR_SLICES_DIRECTORY"
"""The environment variable with the folder for the files of slices."""


class Barrier(Wire):
    """A request to read all slices before it, and to commit what can be committed.

    The connector waits for a line on its stdin, which is sent when this is done. Until then it can keep what
    the slices need, such as a snapshot of a database.
    """


SLICES = "slices"
"""The property of a configured stream by which a connector's reader says that it has tasks for slices."""
FOLLOW = "follow"
"""The property of a configured stream by which a source is asked to follow its log: a `FollowRequest`."""


class FollowRequest(Wire):
    """A request to go on reading a log when its end is reached, instead of ending there.

    The source looks again every so often, and sends a BARRIER after each look, also if nothing has changed:
    its reader then commits what came before, and knows that the source is alive.
    """

    seconds: float  # how long the source follows
    every: Annotated[float, msgspec.Meta(gt=0)]  # seconds between the starts of two looks


CHANGES_COLUMN = "_elt_changes"
"""The name of the column of a slice's batch in which the source says which values it has changed: a list of
objects, as in the meta of a RECORD. It is no column of the table, and known by a mark, not by its name."""
UNCHANGED = "SOURCE_UNCHANGED"
"""`reason` of a null in place of a value that is that of the row's former version, which the source does not
have: a log of changes leaves out large values that did not change."""
SOURCE_COMMIT_TIME = "source_commit_time"
"""Name of the number by which a source of this project says when the oldest change was committed that comes
before its next state: seconds since 1970, by the clock of the source."""
TRUNCATED = "SOURCE_TRUNCATED"
"""`reason` of the nulls in the key of a delete which stands for all rows of the table that arrived before it:
a log of changes says that the table was truncated, but not which rows it had."""
DEPENDENT = (UNCHANGED, TRUNCATED)
"""The reasons that only the rows before a record give a meaning."""
INVALID = "SOURCE_SERIALIZATION_ERROR"
"""`reason` of a null in place of a value that has no place in the type of its field."""


class StreamGeneration(Wire):
    """The start or the end of a generation of a stream, made from the version that a Singer tap sends.

    It is used only inside this project.
    """

    stream_descriptor: StreamDescriptor
    generation_id: int  # the version; the following records of the stream belong to this generation
    complete: bool  # the generation has ended; records of older generations are removed


class Message(Wire):
    """The envelope of all messages; `type` determines which other property is set.

    Spec: AirbyteMessage.
    """

    type: str
    record: Record | None = None
    state: State | None = None
    log: Log | None = None
    spec: Specification | None = None
    connectionStatus: ConnectionStatus | None = None
    catalog: Catalog | None = None
    trace: Trace | None = None
    control: Control | None = None
    destination_catalog: DestinationCatalog | None = None
    news: News | None = None
    partition: Partition | None = None
    comparison: Comparison | None = None
    range: KeyRange | None = None
    slice: Slice | None = None
    barrier: Barrier | None = None
    generation: StreamGeneration | None = None

    @property
    def reported_error(self) -> ErrorTrace | None:
        """The error that a TRACE reports; None for other messages."""
        return self.trace.reported_error if self.trace is not None else None


Received = RawRecord | RecordLines | Message
"""A part of the output of a connector."""


class UndecodedLine(Message):
    """A LOG message that replaces a line that is not a valid message, and quotes the line's beginning.

    The line is a truncated or malformed message (broken JSON included), or a message of an unknown type.
    """


class PlainText(UndecodedLine):
    """An `UndecodedLine` for a line in which no message type is found: plain text, or JSON without `type`."""


def log_line(message: Message) -> tuple[str, str] | None:
    """Return the level and text of a LOG message, or of an error or analytics TRACE; None for others."""
    if message.log is not None:
        return message.log.level, _join_lines(message.log.message, message.log.stack_trace)
    error, trace = message.reported_error, message.trace
    if error is not None:
        details = dict.fromkeys([error.internal_message, error.stack_trace])
        return "ERROR", _join_lines(error.text, *(text for text in details if text != error.text))
    if trace is not None and trace.analytics is not None:
        value = f" = {trace.analytics.value}" if trace.analytics.value else ""
        return "DEBUG", _join_lines(f"analytics of the connector: {trace.analytics.type}{value}")
    return None


def _join_lines(text: str, *details: str | None) -> str:
    """Return a text in one line, and the lines of its details below it."""
    lines = (line for detail in details if detail for line in detail.split("\n"))
    return "\n".join([printable(text, keep="\t"), *(f"    {printable(line)}" for line in lines)])


def printable(text: str, *, keep: str = "\n\t") -> str:
    """Return a text in which characters that control a terminal (its cursor, its colours) are escaped.

    Args:
        keep: control characters that are not escaped.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in text)
