"""Observation of one sync: it turns the events of the sync into reports for the configured receivers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any

from elt_assets.errors import EltError
from elt_assets.protocol.airbyte.catalog import ConfiguredStream, StreamId
from elt_assets.sync.events import Acknowledged, Logged, Measured, SessionEvent, StreamProgress
from elt_assets.telemetry.delivery import Delivery
from elt_assets.telemetry.receivers import create_receivers
from elt_assets.telemetry.report import Outcome, SourceMeasure, StreamReport


@dataclass(frozen=True)
class Subject:
    """The subject of a sync, for reports.

    Attributes:
        connection: the name of the connection, or of the program that syncs.
        location: returns the URI of a stream's table.
        run_id: the id of the run of the orchestrator.
    """

    connection: str
    location: Callable[[ConfiguredStream], str]
    run_id: str | None = None


class Observation:
    """Reports of the streams of one sync. Without a receiver it does nothing.

    Args:
        progress: returns the figures of a stream's read.
    """

    def __init__(self, subject: Subject, progress: Callable[[StreamId], StreamProgress]):
        self._subject = subject
        self._progress = progress
        self._receivers, self._warnings = create_receivers()
        self._delivery = Delivery() if self._receivers else None
        self._reports: dict[StreamId, StreamReport] = {}

    def open(self, stream: ConfiguredStream) -> None:
        """Report that the sync of a stream has started, unless that was reported."""
        if self._delivery is None or stream.id in self._reports:
            return
        report = StreamReport(
            self._subject.connection,
            self._subject.run_id,
            stream.id,
            self._subject.location(stream),
            _fields(stream.stream.json_schema),
        )
        self._reports[stream.id] = report
        for receiver in self._receivers:
            self._delivery.add(partial(receiver.start, report))

    def watch(
        self, events: Generator[SessionEvent, None, None]
    ) -> Generator[SessionEvent, None, None]:
        """Yield the events of the sync, and report the outcome of its streams."""
        yield from (Logged("WARN", warning) for warning in self._warnings)
        try:
            with contextlib.closing(events):
                for event in events:
                    if isinstance(event, Acknowledged):
                        self._count(event)
                    elif isinstance(event, Measured):
                        self._measure(event)
                    yield event
        except Exception as error:
            self._finish_all("FAIL", _message_of(error))
            raise
        except BaseException:  # it was closed or interrupted
            self._finish_all("ABORT", None)
            raise
        self._finish_all("COMPLETE", None)
        if self._delivery is not None and self._delivery.error is not None:
            yield Logged(
                "WARN", f"the lineage or metrics could not be delivered: {self._delivery.error}"
            )

    def _measure(self, event: Measured) -> None:
        if self._delivery is None:
            return
        measure = SourceMeasure(self._subject.connection, event.name, event.value)
        for receiver in self._receivers:
            self._delivery.add(partial(receiver.measure, measure))

    def _count(self, event: Acknowledged) -> None:
        report = self._reports.get(event.stream)
        if report is None:
            return
        report.committed += event.commit.records
        report.rejected += event.commit.rejected
        report.changed += event.commit.changed
        if event.final:
            self._finish(report, "COMPLETE", None)

    def _finish_all(self, outcome: Outcome, error: str | None) -> None:
        for report in self._reports.values():
            if report.outcome is None:
                self._finish(report, outcome, error)
        if self._delivery is not None:
            self._delivery.close()

    def _finish(self, report: StreamReport, outcome: Outcome, error: str | None) -> None:
        progress = self._progress(report.stream)
        report.read, report.bytes = progress.records_read, progress.bytes_read
        report.outcome, report.error = outcome, error
        assert self._delivery is not None
        for receiver in self._receivers:
            self._delivery.add(partial(receiver.finish, report))


def _message_of(error: Exception) -> str:
    """Return the message of an error of this project, in which secrets are masked; else only its class."""
    return error.message if isinstance(error, EltError) else type(error).__name__


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
