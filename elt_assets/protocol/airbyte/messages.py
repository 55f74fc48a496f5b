"""Every message of the Airbyte Protocol, 0.18.

spec: Airbyte Protocol, Messages. Enumerations are plain strings here: a connector may know newer
members than this project, and a sync must not fail over one.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from elt_assets.protocol.airbyte.catalog import Catalog, StreamDescriptor
from elt_assets.protocol.airbyte.wire import Wire

STARTED = "STARTED"
RUNNING = "RUNNING"
COMPLETE = "COMPLETE"
INCOMPLETE = "INCOMPLETE"


NULL = Raw(b"null")
Number = int | float
"""Both, since `1` and `1.0` are sent on as they came."""


class RawRecord(msgspec.Struct, gc=False):
    """A RECORD on the hot path: routed by name, its data never decoded.

    Not a `Wire`: collecting unknown properties would cost more than all else that happens to a
    record here. `Message.from_json` gives the lossless `Record` where one is wanted. A record with a
    `file_reference` is no such record: it does not decode, so that its file is not lost unnoticed.
    """

    stream: str
    data: Raw
    emitted_at: Number | None = None
    namespace: str | None = None
    meta: Raw = NULL
    file_reference: None = None


class Record(Wire):
    """A RECORD whole. `emitted_at`: epoch milliseconds."""

    stream: str
    data: Raw
    emitted_at: Number | None = None
    namespace: str | None = None
    meta: Raw | None = None


class StateStats(Wire):
    """Counts since the previous state of the same kind; a double on the wire."""

    recordCount: Number | None = None
    rejectedRecordCount: Number | None = None


class StreamState(Wire):
    stream_descriptor: StreamDescriptor
    stream_state: Raw | None = None


class GlobalState(Wire):
    stream_states: list[StreamState]
    shared_state: Raw | None = None


class State(Wire):
    """A checkpoint. Blobs stay as received. No `type` means LEGACY.

    spec: State & Checkpointing, V2.
    """

    type: str | None = None
    stream: StreamState | None = None
    global_: GlobalState | None = msgspec.field(default=None, name="global")
    data: Raw | None = None
    sourceStats: StateStats | None = None
    destinationStats: StateStats | None = None


class Log(Wire):
    level: str
    message: str
    stack_trace: str | None = None


class Specification(Wire):
    """spec: Actor Specification."""

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
    status: str
    message: str | None = None

    @property
    def succeeded(self) -> bool:
        return self.status == "SUCCEEDED"


class ErrorTrace(Wire):
    """spec: AirbyteErrorTraceMessage. Some connectors leave its `message` out."""

    message: str | None = None
    internal_message: str | None = None
    stack_trace: str | None = None
    failure_type: str | None = None
    stream_descriptor: StreamDescriptor | None = None

    @property
    def text(self) -> str:
        """What went wrong, in one sentence if the connector says it in one."""
        return self.message or self.internal_message or "an error that the connector does not name"


def decisive(before: ErrorTrace | None, after: ErrorTrace | None) -> ErrorTrace | None:
    """Return the error that says why a read failed, of two that came one after the other.

    The first one does, but an error that names its stream goes before one that names none: airbyte-cdk
    ends every failed read with a combined error without a stream, whose `failure_type` says nothing.
    """
    if before is None or after is None:
        return before or after
    names_stream = before.stream_descriptor is None and after.stream_descriptor is not None
    return after if names_stream else before


class EstimateTrace(Wire):
    """spec: AirbyteEstimateTraceMessage. One of type SYNC is of no stream, and may name none."""

    type: str
    name: str | None = None
    namespace: str | None = None
    row_estimate: Number | None = None
    byte_estimate: Number | None = None


class StreamStatusReason(Wire):
    type: str
    rate_limited: Raw | None = None


class StreamStatusTrace(Wire):
    stream_descriptor: StreamDescriptor
    status: str
    reasons: list[StreamStatusReason] | None = None


class AnalyticsTrace(Wire):
    type: str
    value: str | None = None


class Trace(Wire):
    type: str
    emitted_at: Number | None = None
    error: ErrorTrace | None = None
    estimate: EstimateTrace | None = None
    stream_status: StreamStatusTrace | None = None
    analytics: AnalyticsTrace | None = None

    @property
    def reported_error(self) -> ErrorTrace | None:
        """The error of an ERROR trace, even where it was sent without its body."""
        return self.error or (ErrorTrace() if self.type == "ERROR" else None)


class ConnectorConfig(Wire):
    config: dict[str, Any]


class Control(Wire):
    type: str
    emitted_at: Number | None = None
    connectorConfig: ConnectorConfig | None = None


class DestinationCatalog(Wire):
    operations: list[Raw] | None = None


class StreamNews(Wire):
    """Whether a stream has anything that its state does not cover; None: the source cannot tell."""

    stream_descriptor: StreamDescriptor
    has_news: bool | None = None


class News(Wire):
    """What `probe` returns: a verb of this project's own connectors, beyond the Airbyte Protocol."""

    streams: list[StreamNews]


class StreamGeneration(Wire):
    """What a Singer version is here; never on the wire. Records of the stream are of this generation from
    now on; where it is `complete`, those of older ones are to go."""

    stream_descriptor: StreamDescriptor
    generation_id: int
    complete: bool


class Message(Wire):
    """The envelope: `type` says which one of the others is set.

    spec: AirbyteMessage.
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
    generation: StreamGeneration | None = None

    @property
    def reported_error(self) -> ErrorTrace | None:
        """The error that a TRACE reports, if it is one."""
        return self.trace.reported_error if self.trace is not None else None


class Unread(Message):
    """A LOG message made of a line that could not be read: it quotes that line's beginning."""


class Noise(Unread):
    """Of a line that was no message at all."""
