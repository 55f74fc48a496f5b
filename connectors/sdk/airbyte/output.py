"""The Airbyte messages of a source.

Spec: Airbyte Protocol.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, BinaryIO

import msgspec
from msgspec import Raw

from connectors.sdk.airbyte.staging import DocumentStaging
from connectors.sdk.comparison import ComparedRange, ComparedTable
from connectors.sdk.encoding import encode
from connectors.sdk.groups import GroupState
from connectors.sdk.items import Change, Document, Measure, Page, Record, Slice
from connectors.sdk.output import TimedOutput, encode_record, encode_records
from connectors.sdk.reports import RATE_LIMITED
from connectors.sdk.sync import StreamOutput
from elt_assets.protocol import message_output
from elt_assets.protocol import messages as wire
from elt_assets.protocol.catalog import ConfiguredStream, StreamDescriptor
from elt_assets.protocol.message_output import OutputClosedError
from elt_assets.protocol.message_rules import MAX_KEY
from elt_assets.protocol.messages import Message

RECORDS_AT_ONCE = 1000
"""Number of records that are encoded at once: more would take memory, and be no faster."""
_FILES = "connectors.sdk.slice_files"
"""It is imported when it is used: pyarrow is slow to import."""


class SourceOutput(TimedOutput):
    """The buffered messages of a source."""

    def __init__(self, stream: BinaryIO):
        super().__init__(stream)
        self.staging = DocumentStaging()

    def record(self, head: bytes, data: Record) -> None:
        """Send a record. This is the hot path: the bytes before the data are made once per stream
        (`record_head`), so a record needs one encoding and one copy. The data is encoded first, so that
        a failure leaves no incomplete line.
        """
        encoded = encode_record(data)
        emitted_at = time.time_ns() // 1_000_000
        self._buffer += b'%b%b,"emitted_at":%d}}\n' % (head, encoded, emitted_at)
        self.flush_if_due(emitted_at)

    def record_with_changes(self, head: bytes, data: Record, changes: Sequence[Change]) -> None:
        """Send a record of which the source has changed values. Spec: AirbyteRecordMessageMeta."""
        meta = encode({"changes": changes})
        emitted_at = time.time_ns() // 1_000_000
        body = (head, encode_record(data), emitted_at, meta)
        self._buffer += b'%b%b,"emitted_at":%d,"meta":%b}}\n' % body
        self.flush_if_due(emitted_at)

    def record_with_document(self, head: bytes, document: Document) -> None:
        """Send a record with the reference to its file, which is written first.

        It is sent at once, so that the reader can take the file.
        """
        reference = encode(self.staging.write(document))
        emitted_at = time.time_ns() // 1_000_000
        body = (head, encode_record(document), emitted_at, reference)
        self._buffer += b'%b%b,"emitted_at":%d,"file_reference":%b}}\n' % body
        self.flush()

    def barrier(self) -> None:
        """Ask the reader to read all slices so far, and wait until it has done so.

        Raises:
            OutputClosedError: the reader has ended.
        """
        self.send([Message(type="BARRIER", barrier=wire.Barrier())])
        self.flush()
        if not sys.stdin.buffer.readline():
            raise OutputClosedError

    def records(self, head: bytes, data: list[Record]) -> None:
        """Send several records, as `record` does."""
        emitted_at = time.time_ns() // 1_000_000
        end = b',"emitted_at":%d}}\n' % emitted_at
        for begin in range(0, len(data), RECORDS_AT_ONCE):
            lines = encode_records(data[begin : begin + RECORDS_AT_ONCE])
            self._buffer += head
            self._buffer += lines[:-1].replace(b"\n", end + head)
            self._buffer += end
            self.flush_if_due(emitted_at)

    def partition(self, partition: wire.Partition) -> None:
        self.send([Message(type="PARTITION", partition=partition)])
        self.flush_if_due(time.time_ns() // 1_000_000)

    def comparison(self, stream: StreamDescriptor, part: ComparedTable | ComparedRange) -> None:
        """Send a part of the answer of `compare`."""
        if isinstance(part, ComparedTable):
            message = Message(type="COMPARISON", comparison=_describe_table(stream, part))
        else:
            after, until, keys = (
                None if value is None else Raw(encode(value))
                for value in (part.bounds.after, part.bounds.until, part.keys)
            )
            body = wire.KeyRange(
                stream_descriptor=stream,
                rows=part.rows,
                hash=str(part.hash),
                after=after,
                until=until,
                keys=keys,
            )
            message = Message(type="RANGE", range=body)
        self.send([message])
        self.flush_if_due(time.time_ns() // 1_000_000)

    def status(self, stream: StreamDescriptor, status: str) -> None:
        self.send([message_output.stream_status(stream, status)])
        self.flush()

    def config_update(self, config: Mapping[str, Any]) -> None:
        """Send the whole config after a change."""
        self.send([message_output.config_update(config)])
        self.flush()

    def rate_limited(self, stream: StreamDescriptor, seconds: float) -> None:
        until = int((time.time() + seconds) * 1000)
        limit = Raw(msgspec.json.encode({"quota_reset": until}))
        reason = wire.StreamStatusReason(type=RATE_LIMITED, rate_limited=limit)
        self._trace(
            wire.Trace(
                type="STREAM_STATUS",
                stream_status=wire.StreamStatusTrace(
                    stream_descriptor=stream, status=wire.RUNNING, reasons=[reason]
                ),
            )
        )
        self.flush()

    def estimate(self, stream: StreamDescriptor, rows: int) -> None:
        """Send an estimate. Spec: AirbyteEstimateTraceMessage: `row_estimate` is an integer."""
        body = wire.EstimateTrace(
            name=stream.name, namespace=stream.namespace, type="STREAM", row_estimate=rows
        )
        self._trace(wire.Trace(type="ESTIMATE", estimate=body))

    def measure(self, measure: Measure) -> None:
        """Send a number. Spec: AirbyteAnalyticsTraceMessage."""
        body = wire.AnalyticsTrace(type=measure.name, value=str(measure.value))
        self._trace(wire.Trace(type="ANALYTICS", analytics=body))

    def state(
        self, stream: StreamDescriptor, state: dict[str, Any] | Raw, records: int | None
    ) -> None:
        """Send a state; `records` is the number of the stream's records since its previous state, if it is
        known."""
        body = state if isinstance(state, Raw) else Raw(encode(state))
        blob = wire.StreamState(stream_descriptor=stream, stream_state=body)
        stats = None if records is None else wire.StateStats(recordCount=float(records))
        message = wire.State(type="STREAM", stream=blob, sourceStats=stats)
        self.send([Message(type="STATE", state=message)])
        self.flush()

    def group_state(self, state: GroupState) -> None:
        """Send a GLOBAL state."""
        parts = [
            wire.StreamState(stream_descriptor=stream.descriptor, stream_state=Raw(encode(own)))
            for stream, own in state.streams.items()
        ]
        shared = Raw(encode(state.shared))
        independent = True if state.is_independent else None
        body = wire.GlobalState(stream_states=parts, shared_state=shared, independent=independent)
        self.send([Message(type="STATE", state=wire.State(type="GLOBAL", global_=body))])
        self.flush()

    def _trace(self, trace: wire.Trace) -> None:
        trace.emitted_at = time.time() * 1000
        self.send([Message(type="TRACE", trace=trace)])


def _describe_table(stream: StreamDescriptor, table: ComparedTable) -> wire.Comparison:
    limit = table.limit
    return wire.Comparison(
        stream_descriptor=stream,
        key=list(table.key),
        key_types=list(table.key.values()),
        columns=[wire.ComparedColumn(name=n, type=kind) for n, kind in table.columns.items()],
        left_out=dict(table.left_out),
        position=None if table.position is None else Raw(encode(table.position)),
        cursor=table.cursor,
        until=None if limit is None else Raw(encode(limit.until)),
        is_open=True if limit is not None and limit.is_open else None,
    )


def record_head(stream: StreamDescriptor) -> bytes:
    """Return a RECORD message up to its data. All that tells streams apart is there, so that a reader can
    route a line without decoding it."""
    namespace = b""
    if stream.namespace is not None:
        namespace = b'"namespace":%b,' % msgspec.json.encode(stream.namespace)
    name = msgspec.json.encode(stream.name)
    return b'{"type":"RECORD","record":{%b"stream":%b,"data":' % (namespace, name)


class AirbyteStreamOutput(StreamOutput):
    """The Airbyte messages about one stream."""

    def __init__(self, output: SourceOutput, configured: ConfiguredStream):
        self._output = output
        self.takes_slices = bytes(configured.extra.get(wire.SLICES, b"")) == b"true"
        self.answers_barriers = self.takes_slices or wire.FOLLOW in configured.extra
        self._takes_documents = configured.has_documents
        self._stream = configured.id.descriptor
        self._head = record_head(self._stream)
        self._is_running = False
        self._has_slices = False

    def begin(self) -> None:
        self._output.status(self._stream, wire.STARTED)

    def record(self, record: Record) -> None:
        self._run()
        if self._takes_documents and isinstance(record, Document):
            self._output.record_with_document(self._head, record)
        else:
            self._output.record(self._head, record)

    def page(self, page: Page) -> None:
        if page.records:
            self._run()
        if not page.changes:
            self._output.records(self._head, page.records)
            return
        for number, record in enumerate(page.records):
            if number in page.changes:
                self._output.record_with_changes(self._head, record, page.changes[number])
            else:
                self._output.record(self._head, record)

    def slice(self, part: Slice) -> None:
        self._run()
        self._has_slices = True
        body = wire.Slice(
            stream_descriptor=self._stream,
            key=part.key[:MAX_KEY],
            data=Raw(encode(part.data)),
            row_estimate=part.rows,
            file=None if part.file is None else import_module(_FILES).name_file(part.file),
            file_has_changes=True if part.file_has_changes else None,
        )
        self._output.send([Message(type="SLICE", slice=body)])
        self._output.flush_if_due(time.time_ns() // 1_000_000)

    def barrier(self) -> None:
        self._output.barrier()

    def state(self, state: dict[str, Any] | Raw, records: int) -> None:
        # Only the tasks know how many records slices have.
        self._output.state(self._stream, state, None if self._has_slices else records)

    def group_state(self, state: GroupState) -> None:
        self._output.group_state(state)

    def estimate(self, rows: int) -> None:
        self._output.estimate(self._stream, rows)

    def measure(self, measure: Measure) -> None:
        self._output.measure(measure)

    def warn(self, text: str) -> None:
        self._output.log("WARN", f"stream {self._stream.id}: {text}")

    def wait(self, seconds: float, reason: str) -> None:
        """Spec: AirbyteStreamStatusReason: `quota_reset` is the time at which the stream continues."""
        if reason == RATE_LIMITED:
            self._output.rate_limited(self._stream, seconds)
        else:
            self.warn(f"waits {seconds:.0f} seconds before it tries again")
            self._output.flush()

    def complete(self) -> None:
        self._output.status(self._stream, wire.COMPLETE)

    def _run(self) -> None:
        """Report before the first record that there are records."""
        if not self._is_running:
            self._output.status(self._stream, wire.RUNNING)
            self._is_running = True

    def fail(self, error: Exception) -> None:
        self._output.error(error, self._stream)
        self._output.status(self._stream, wire.INCOMPLETE)
