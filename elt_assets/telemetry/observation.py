"""Observation of one sync: it turns the events of the sync into reports for the configured receivers.

`pipeline.read` observes each read with it; `pipeline.connection_read` and `destination` make the `Subject`.

First `StreamReport` and the interface of its receivers, lineage and metrics; then `Delivery`, which calls
them in the background, never fails a sync, and delays its end by `MAX_WAIT` at most; then `create_receivers`,
which finds those that the environment configures; and at the end `Observation`, which `pipeline.read` uses.
"""

from __future__ import annotations

import importlib
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Literal, Protocol

from elt_assets.errors import EltError
from elt_assets.protocol.catalog import ConfiguredStream, StreamId
from elt_assets.sync.events import Acknowledged, Measured, SessionEvent, StreamProgress
from elt_assets.sync.source_lag import SourceLag

Outcome = Literal["COMPLETE", "FAIL", "ABORT"]
"""The end of a sync, in the words of OpenLineage. ABORT: it was cancelled."""


@dataclass
class StreamReport:
    """The sync of one stream: its subject, and its figures so far."""

    connection: str  # the name of the connection, or of the program that syncs
    # the id of the run of the orchestrator that the sync is part of; None if there is none
    run_id: str | None
    stream: StreamId
    location: str  # the URI of the table
    fields: Sequence[tuple[str, str]]  # the stream's fields, each with its type as text
    read: int = 0  # the number of records that were read; the other counts are of records, too
    committed: int = 0
    rejected: int = 0
    changed: int = 0
    bytes: int = 0  # the number of bytes that were read
    # seconds from the source's commit of the oldest change of the last window to its commit in the lake;
    # None if the source reads no log, or no change came
    source_lag: float | None = None
    outcome: Outcome | None = None
    error: str | None = None  # the message of the error that ended the sync
    started: float = field(default_factory=time.time)

    @property
    def seconds(self) -> float:
        """Seconds since the sync of the stream started."""
        return time.time() - self.started


@dataclass(frozen=True)
class SourceMeasure:
    """A number that the source of a connection reports."""

    connection: str
    name: str
    value: float


class Receiver(Protocol):
    """A receiver of reports. Its methods are called in one background thread, in order."""

    def start(self, report: StreamReport) -> None:
        """Report that the sync of a stream has started."""

    def measure(self, measure: SourceMeasure) -> None:
        """Report a number of the source."""

    def finish(self, report: StreamReport) -> None:
        """Report the outcome and the figures of a sync."""


MAX_CALLS = 10_000
"""Number of calls that may wait. The reports of a sync that lasts for days do not fill the memory if its
receiver is slower than they come: those that come then are dropped, and `error` says so."""
MAX_WAIT = 5.0
"""Seconds that the end of a sync waits for reports that are not delivered yet."""


class Delivery:
    """A queue of calls, which a daemon thread makes one after the other. After an error it makes the others.

    Attributes:
        error: the text of the first error; None if there was none.
    """

    def __init__(self) -> None:
        self.error: str | None = None
        self._calls: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
        self._thread.start()

    def add(self, call: Callable[[], object]) -> None:
        """Queue a call, unless too many wait."""
        if self._calls.qsize() < MAX_CALLS:
            self._calls.put(call)
        elif self.error is None:
            self.error = (
                f"the receiver is too slow: reports were dropped while {MAX_CALLS:,} waited"
            )

    def close(self) -> None:
        """Wait until all calls are made, or the time is over; `error` then says so."""
        self._calls.put(None)
        self._thread.join(MAX_WAIT)
        if self._thread.is_alive() and self.error is None:
            self.error = f"the receiver did not answer within {MAX_WAIT:g} seconds"

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            self._make(call)

    def _make(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - a broken receiver must not fail the sync
            self.error = self.error or f"{type(error).__name__}: {error}"


@dataclass(frozen=True)
class _Kind:
    """A kind of receiver: its extra, the prefix of its variables, its module and class, and when it is
    configured."""

    extra: str
    prefix: str
    module: str
    name: str
    is_configured: Callable[[Mapping[str, str]], bool]


def _has_lineage(environment: Mapping[str, str]) -> bool:
    names = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT")
    is_disabled = environment.get("OPENLINEAGE_DISABLED", "").lower() == "true"
    return not is_disabled and any(
        value and name.startswith(names) for name, value in environment.items()
    )


def _has_metrics(environment: Mapping[str, str]) -> bool:
    names = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
    is_disabled = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    is_other = environment.get("OTEL_METRICS_EXPORTER") or "otlp"
    return not is_disabled and is_other == "otlp" and any(environment.get(name) for name in names)


_KINDS = (
    _Kind("openlineage", "OPENLINEAGE_", "elt_assets.telemetry.lineage", "Lineage", _has_lineage),
    _Kind("opentelemetry", "OTEL_", "elt_assets.telemetry.metrics", "Metrics", _has_metrics),
)


def create_receivers() -> tuple[list[Receiver], list[str]]:
    """Return the receivers, and a warning for each one that is configured and cannot be used."""
    receivers, warnings = [], []
    for kind in _KINDS:
        if not kind.is_configured(os.environ):
            continue
        try:
            environment = os.environ.items()
            own = sorted(item for item in environment if item[0].startswith(kind.prefix))
            receivers.append(_receiver(kind, tuple(own)))
        except ImportError as error:
            warnings.append(
                f"{kind.extra} is configured in the environment, but its library is missing ({error}): "
                f"install elt-assets[{kind.extra}]"
            )
        except Exception as error:  # noqa: BLE001 - a wrong setting of a library must not fail the sync
            warnings.append(f"{kind.extra} cannot be used: {type(error).__name__}: {error}")
    return receivers, warnings


@cache
def _receiver(kind: _Kind, _settings: tuple[tuple[str, str], ...]) -> Receiver:
    """Return the receiver of this process with these settings: its sums belong to the process."""
    receiver: Receiver = getattr(importlib.import_module(kind.module), kind.name)()
    return receiver


@dataclass(frozen=True)
class Subject:
    """The subject of a sync, for reports."""

    connection: str  # the name of the connection, or of the program that syncs
    location: Callable[[ConfiguredStream], str]  # returns the URI of a stream's table
    run_id: str | None = None  # the id of the run of the orchestrator


class Observation:
    """Observer of a read that reports its streams. Without a subject or a receiver it does nothing.

    Args:
        progress: returns the figures of a stream's read.
    """

    def __init__(self, subject: Subject | None, progress: Callable[[StreamId], StreamProgress]):
        self._subject = subject
        self._progress = progress
        self._receivers, self.warnings = ([], []) if subject is None else create_receivers()
        """The receivers, and why others that are configured cannot be used."""
        self._delivery = Delivery() if self._receivers else None
        self._reports: dict[StreamId, StreamReport] = {}
        self._lag = SourceLag()

    @property
    def error(self) -> str | None:
        """The text of the first error of the delivery; None if there was none."""
        return None if self._delivery is None else self._delivery.error

    def open(self, stream: ConfiguredStream) -> None:
        """Report that the sync of a stream has started, unless that was reported."""
        subject = self._subject
        if subject is None or not self._receivers or stream.id in self._reports:
            return
        self._reports[stream.id] = report = StreamReport(
            subject.connection,
            subject.run_id,
            stream.id,
            subject.location(stream),
            _fields(stream.stream.json_schema),
        )
        self._deliver(lambda receiver: receiver.start(report))

    def observe(self, event: SessionEvent) -> None:
        """Count a commit, or report a number of the source."""
        self._lag.observe(event)
        if isinstance(event, Measured) and self._subject is not None:
            measure = SourceMeasure(self._subject.connection, event.name, event.value)
            self._deliver(lambda receiver: receiver.measure(measure))
        elif isinstance(event, Acknowledged) and event.stream in self._reports:
            report = self._reports[event.stream]
            report.committed += event.commit.records
            report.rejected += event.commit.rejected
            report.changed += event.commit.changed
            report.source_lag = self._lag.of(event.stream)
            if event.completes:
                self._finish(report, "COMPLETE", None)

    def finish(self, outcome: Outcome, error: Exception | None) -> None:
        """Report the outcome of the streams that have none, and wait until all reports are delivered.

        Only the message of an error of this project is reported: secrets are masked there. Of any other one,
        it is the class.
        """
        text = None if error is None else type(error).__name__
        if isinstance(error, EltError):
            text = error.message
        for report in self._reports.values():
            if report.outcome is None:
                self._finish(report, outcome, text)
        if self._delivery is not None:
            self._delivery.close()

    def _finish(self, report: StreamReport, outcome: Outcome, error: str | None) -> None:
        progress = self._progress(report.stream)
        report.read, report.bytes = progress.records_read, progress.bytes_read
        report.outcome, report.error = outcome, error
        self._deliver(lambda receiver: receiver.finish(report))

    def _deliver(self, call: Callable[[Receiver], object]) -> None:
        for receiver in self._receivers:
            assert self._delivery is not None
            self._delivery.add(partial(call, receiver))


def _fields(schema: Any) -> list[tuple[str, str]]:
    """Return the top-level fields of a JSON schema with their types as text."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return []
    return [(name, _type_of(schema)) for name, schema in properties.items()]


def _type_of(schema: Any) -> str:
    if not isinstance(schema, dict):
        return "any"
    types = schema.get("type", "any")
    names = [str(type_name) for type_name in (types if isinstance(types, list) else [types])]
    text = " | ".join(name for name in names if name != "null") or "null"
    detail = schema.get("airbyte_type") or schema.get("format")
    return f"{text} ({detail})" if detail else text
