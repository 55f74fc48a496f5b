"""Observation of one sync: it turns the events of the sync into reports for the configured receivers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from elt_assets.errors import EltError
from elt_assets.protocol.catalog import ConfiguredStream, StreamId
from elt_assets.sync.events import Acknowledged, Measured, SessionEvent, StreamProgress
from elt_assets.telemetry.delivery import Delivery
from elt_assets.telemetry.receivers import create_receivers
from elt_assets.telemetry.report import Outcome, Receiver, SourceMeasure, StreamReport


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
        if isinstance(event, Measured) and self._subject is not None:
            measure = SourceMeasure(self._subject.connection, event.name, event.value)
            self._deliver(lambda receiver: receiver.measure(measure))
        elif isinstance(event, Acknowledged) and event.stream in self._reports:
            report = self._reports[event.stream]
            report.committed += event.commit.records
            report.rejected += event.commit.rejected
            report.changed += event.commit.changed
            if event.final:
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
