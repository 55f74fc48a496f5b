"""The command line of a source: it runs commands and sends Airbyte messages.

Spec: Airbyte Specification, Source; Airbyte Protocol, Actor Interface.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any, BinaryIO

import msgspec
from msgspec import Raw

from connectors.sdk.items import Checkpoint, Estimate, Record, Warn
from connectors.sdk.source import Source, validate
from connectors.sdk.state import load_states
from connectors.sdk.stream import Stream
from elt_assets.errors import ConfigError, EltError
from elt_assets.protocol.airbyte import message_factory
from elt_assets.protocol.airbyte import messages as wire
from elt_assets.protocol.airbyte.arguments import load_catalog, load_config
from elt_assets.protocol.airbyte.catalog import (
    INCREMENTAL,
    Catalog,
    ConfiguredStream,
    StreamDescriptor,
)
from elt_assets.protocol.airbyte.messages import Message
from elt_assets.protocol.output import Output, OutputClosedError
from elt_assets.protocol.specification import secret_values

FLUSH_BYTES = 1 << 16
FLUSH_MS = 1_000

_encode_record = msgspec.json.Encoder(decimal_format="number").encode


def run(source: Source, argv: Sequence[str], stdout: BinaryIO | None = None) -> int:
    """Run one command and return the exit code; messages go to `stdout`.

    0: success, also for a `check` that finds the source unusable. 1: failure, which a TRACE ERROR
    describes; or the reader has closed the output.

    Raises:
        SystemExit: the arguments are not valid (code 2), or request help.
    """
    arguments = _parser(source.name).parse_args(argv)
    output = SourceOutput(stdout or sys.stdout.buffer)
    try:
        failures = _command(source, arguments, output)
        output.flush()
    except OutputClosedError:
        return 1
    return 1 if failures else 0


class SourceOutput(Output):
    """The buffered messages of a source."""

    def __init__(self, stream: BinaryIO):
        super().__init__(stream)
        self._flush_due = 0

    def record(self, head: bytes, data: Record) -> None:
        """Send a record. This is the hot path: the bytes around the data are made once per stream
        (`record_head`), so a record needs one encoding and one copy. The data is encoded first, so that
        a failure leaves no incomplete line.
        """
        encoded = _encode_record(data)
        now = time.time_ns() // 1_000_000
        self._buffer += b'%b%d,"data":%b}}\n' % (head, now, encoded)
        # Flush after a time too, so that a slow source does not look like one that has stopped.
        if len(self._buffer) >= FLUSH_BYTES or now >= self._flush_due:
            self.flush()

    def status(self, stream: StreamDescriptor, status: str) -> None:
        self.send([message_factory.stream_status(stream, status)])
        self.flush()

    def estimate(self, stream: StreamDescriptor, rows: int) -> None:
        """Send an estimate. Spec: AirbyteEstimateTraceMessage: `row_estimate` is an integer."""
        body = wire.EstimateTrace(
            name=stream.name, namespace=stream.namespace, type="STREAM", row_estimate=rows
        )
        self._trace(wire.Trace(type="ESTIMATE", estimate=body))

    def state(self, stream: StreamDescriptor, state: dict[str, Any] | Raw, records: int) -> None:
        """Send a state; `records` is the number of the stream's records since its previous state."""
        body = state if isinstance(state, Raw) else Raw(_encode_record(state))
        blob = wire.StreamState(stream_descriptor=stream, stream_state=body)
        stats = wire.StateStats(recordCount=float(records))
        message = wire.State(type="STREAM", stream=blob, sourceStats=stats)
        self.send([Message(type="STATE", state=message)])
        self.flush()

    def flush(self) -> None:
        super().flush()
        self._flush_due = time.time_ns() // 1_000_000 + FLUSH_MS

    def _trace(self, trace: wire.Trace) -> None:
        trace.emitted_at = time.time() * 1000
        self.send([Message(type="TRACE", trace=trace)])


def record_head(stream: StreamDescriptor) -> bytes:
    """Return a RECORD message up to the value of `emitted_at`."""
    namespace = b""
    if stream.namespace is not None:
        namespace = b'"namespace":%b,' % msgspec.json.encode(stream.namespace)
    name = msgspec.json.encode(stream.name)
    return b'{"type":"RECORD","record":{"stream":%b,%b"emitted_at":' % (name, namespace)


def _parser(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=name)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("spec", help="print the specification of the config")
    for command, files in (
        ("check", ("config",)),
        ("discover", ("config",)),
        ("read", ("config", "catalog")),
        ("probe", ("config", "catalog")),
    ):
        subparser = commands.add_parser(command)
        for file in files:
            subparser.add_argument(f"--{file}", required=True, metavar="FILE")
        if "catalog" in files:
            subparser.add_argument("--state", metavar="FILE", help="the states of the last read")
    return parser


def _command(source: Source, arguments: argparse.Namespace, output: SourceOutput) -> int:
    """Run one command and return the number of failures. Each failure has been reported."""
    try:
        if arguments.command == "spec":
            _spec(source, output)
        elif arguments.command == "check":
            _check(source, arguments.config, output)
        elif arguments.command == "discover":
            _discover(source, arguments.config, output)
        elif arguments.command == "probe":
            _probe(source, arguments, output)
        else:
            return _read(source, arguments, output)
    except OutputClosedError:
        raise
    except Exception as error:  # noqa: BLE001 - every error is reported
        output.error(error)
        return 1
    return 0


def _spec(source: Source, output: SourceOutput) -> None:
    body = wire.Specification(
        connectionSpecification=source.connection_specification,
        protocol_version=message_factory.PROTOCOL_VERSION,
    )
    output.send([Message(type="SPEC", spec=body)])


def _check(source: Source, path: str, output: SourceOutput) -> None:
    try:
        source.check(_config(source, path, output))
    except EltError as error:
        output.connection(succeeded=False, text=str(error))
    else:
        output.connection(succeeded=True)


def _discover(source: Source, path: str, output: SourceOutput) -> None:
    streams = source.streams(_config(source, path, output))
    catalog = Catalog(streams=[stream.describe() for stream in streams])
    output.send([Message(type="CATALOG", catalog=catalog)])


def _config(source: Source, path: str, output: SourceOutput) -> dict[str, Any]:
    config = load_config(path)
    output.mask.add(secret_values(config, source.connection_specification))
    validate(config, source.connection_specification)
    return config


def _read(source: Source, arguments: argparse.Namespace, output: SourceOutput) -> int:
    config = _config(source, arguments.config, output)
    catalog = load_catalog(arguments.catalog)
    states = load_states(arguments.state)
    streams = {stream.id: stream for stream in source.streams(config)}
    failures = 0
    for configured in catalog.streams:
        stream = streams.get(configured.id)
        if stream is None:
            # Spec: Schema Mismatches: never a failure.
            output.log("WARN", f"skipped stream {configured.id}: the source does not have it")
        elif not _read_stream(stream, configured, states.get(configured.id), output):
            failures += 1
    return failures


def _probe(source: Source, arguments: argparse.Namespace, output: SourceOutput) -> None:
    """Send one NEWS message. New data is unknown for a stream that the source does not have."""
    config = _config(source, arguments.config, output)
    catalog, states = load_catalog(arguments.catalog), load_states(arguments.state)
    streams = {stream.id: stream for stream in source.streams(config)}
    news = []
    for configured in catalog.streams:
        stream, state = streams.get(configured.id), states.get(configured.id)
        descriptor = configured.id.descriptor
        has_news = stream.has_new_data(configured, state) if stream else None
        news.append(wire.StreamNews(stream_descriptor=descriptor, has_news=has_news))
    output.send([Message(type="NEWS", news=wire.News(streams=news))])


def _read_stream(
    stream: Stream, configured: ConfiguredStream, state: dict[str, Any] | None, output: SourceOutput
) -> bool:
    """Read one stream, from STARTED to COMPLETE or INCOMPLETE, and return whether it is COMPLETE."""
    descriptor = stream.id.descriptor
    output.status(descriptor, wire.STARTED)
    try:
        _require_mode(stream, configured)
        resumes = configured.sync_mode == INCREMENTAL or stream.is_resumable
        _copy(stream, configured, state if resumes else None, output)
    except OutputClosedError:
        raise
    except Exception as error:  # noqa: BLE001 - the other streams are still read
        output.error(error, descriptor)
        output.status(descriptor, wire.INCOMPLETE)
        return False
    output.status(descriptor, wire.COMPLETE)
    return True


def _require_mode(stream: Stream, configured: ConfiguredStream) -> None:
    modes = stream.describe().supported_sync_modes or ()
    if configured.sync_mode == INCREMENTAL and INCREMENTAL not in modes:
        raise ConfigError(
            f"stream {str(stream.id)!r} cannot be read incrementally",
            guidance="set `sync_mode: full_refresh`",
        )


def _copy(
    stream: Stream, configured: ConfiguredStream, state: dict[str, Any] | None, output: SourceOutput
) -> None:
    descriptor = stream.id.descriptor
    head = record_head(descriptor)
    is_running, since_state = False, 0
    for item in stream.read(configured, state):
        if isinstance(item, Checkpoint):
            output.state(descriptor, item.state, since_state)
            since_state = 0
        elif isinstance(item, Estimate):
            output.estimate(descriptor, item.rows)
        elif isinstance(item, Warn):
            output.log("WARN", f"stream {configured.id}: {item.text}")
        else:
            if not is_running:
                output.status(descriptor, wire.RUNNING)
                is_running = True
            output.record(head, item)
            since_state += 1
