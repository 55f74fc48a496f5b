"""OpenTelemetry metrics of syncs, sent by OTLP over HTTP, from the reports of `observation`."""

from __future__ import annotations

import math
import uuid

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

from elt_assets.telemetry.observation import SourceMeasure, StreamReport

_COUNTERS = {
    "read": ("{record}", "records read from the source"),
    "committed": ("{record}", "records committed to the table"),
    "rejected": ("{record}", "records written to the dead letter table"),
    "changed": ("{record}", "records with a value that was nulled or changed"),
    "bytes": ("By", "bytes read from the source"),
}
_TIMEOUT = 4_000
"""Milliseconds for one export."""


class Metrics:
    """Counts syncs, and sends the sums at the end of each.

    The attributes of each value are `connection` and `stream`. The sums are those of this process, which has
    a `service.instance.id` of its own.
    """

    def __init__(self) -> None:
        # Without an interval: the values change only at the end of a sync, which sends them.
        reader = PeriodicExportingMetricReader(
            OTLPMetricExporter(), export_interval_millis=math.inf, export_timeout_millis=_TIMEOUT
        )
        own = {"service.name": "elt-assets", "service.instance.id": str(uuid.uuid4())}
        # The environment (OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES) comes before these.
        resource = Resource(own).merge(Resource.create())
        self._provider = MeterProvider([reader], resource, shutdown_on_exit=False)
        meter = self._provider.get_meter("elt_assets")
        self._counters = {
            name: meter.create_counter(f"elt.sync.{name}", unit, f"Number of {text}")
            for name, (unit, text) in _COUNTERS.items()
        }
        self._syncs = meter.create_counter("elt.sync.runs", "{sync}", "Number of ended syncs")
        self._failures = meter.create_counter(
            "elt.sync.failures", "{sync}", "Number of failed syncs"
        )
        self._measures = meter.create_gauge(
            "elt.source.measure", description="Number that a source reports, by its name"
        )
        self._lag = meter.create_gauge(
            "elt.source.lag", "s", "Time from the commit in the source to that in the lake"
        )
        self._seconds = meter.create_histogram("elt.sync.duration", "s", "Duration of syncs")

    def start(self, report: StreamReport) -> None:
        """Do nothing: the end of a sync is counted."""

    def measure(self, measure: SourceMeasure) -> None:
        attributes = {"connection": measure.connection, "name": measure.name}
        self._measures.set(measure.value, attributes)

    def finish(self, report: StreamReport) -> None:
        attributes = {"connection": report.connection, "stream": str(report.stream)}
        for name, counter in self._counters.items():
            counter.add(getattr(report, name), attributes)
        self._syncs.add(1, {**attributes, "outcome": str(report.outcome)})
        self._failures.add(int(report.outcome == "FAIL"), attributes)
        self._seconds.record(report.seconds, attributes)
        if report.source_lag is not None:
            self._lag.set(report.source_lag, attributes)
        if not self._provider.force_flush(_TIMEOUT):
            raise ConnectionError("the metrics were not accepted")
