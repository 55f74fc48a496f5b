"""Lineage and metrics of syncs, as receivers on the loopback interface get them."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from elt_assets.protocol.catalog import StreamId
from elt_assets.telemetry import observation
from elt_assets.telemetry.lineage import Lineage, dataset_name
from elt_assets.telemetry.observation import StreamReport, create_receivers
from tests.destination.running import Destination, records, stream
from tests.destination.running import state as destination_state
from tests.programs.scripted import record, script, state
from tests.support.project import Project
from tests.support.runs import materialize, read_log


class Receiver(ThreadingHTTPServer):
    """Keeps the bodies of all requests by path; answers with `code` after `delay` seconds."""

    daemon_threads = True
    code, delay = 200, 0.0

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[tuple[str, bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def lineage(self) -> list[dict[str, Any]]:
        return [json.loads(body) for path, body in self.bodies if path == "/api/v1/lineage"]

    @property
    def metrics(self) -> dict[str, dict[str, Any]]:
        """The newest values: by metric, the attributes and the value of each point."""
        values: dict[str, dict[str, Any]] = {}
        for path, body in self.bodies:
            if path != "/v1/metrics":
                continue
            request = ExportMetricsServiceRequest.FromString(body)
            for metric in request.resource_metrics[0].scope_metrics[0].metrics:
                points = getattr(metric, metric.WhichOneof("data")).data_points
                values[metric.name] = {
                    ",".join(
                        sorted(attribute.value.string_value for attribute in point.attributes)
                    ): (
                        point.count
                        if metric.name.endswith("duration")
                        else getattr(point, point.WhichOneof("value"))
                    )
                    for point in points
                }
        return values


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.bodies.append((self.path, body))
        time.sleep(self.server.delay)
        self.send_response(self.server.code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Write no log."""


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """A receiver of both, which the environment configures."""
    server = Receiver()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("OPENLINEAGE_URL", server.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def _environment() -> Iterator[None]:
    """Remove the variables that the libraries read, and those that they set themselves."""
    former = dict(os.environ)
    for name in former:
        if name.startswith(("OPENLINEAGE_", "OTEL_")):
            del os.environ[name]
    yield
    for name in set(os.environ) - set(former):
        del os.environ[name]


def _validate(event: dict[str, Any]) -> RunEvent:
    """Return an event as the library's own classes, which check its times, ids and states."""
    return RunEvent(
        eventTime=event["eventTime"],
        producer=event["producer"],
        run=Run(event["run"]["runId"]),
        job=Job(event["job"]["namespace"], event["job"]["name"]),
        eventType=RunState[event["eventType"]],
    )


@pytest.mark.usefixtures("spark_provider")
def test_a_sync_and_a_failed_one_are_reported(own: Project, receiver: Receiver) -> None:
    measure = {"type": "ANALYTICS", "emitted_at": 1, "analytics": {"type": "queue", "value": "7"}}
    others = [{**measure, "analytics": {"type": "text", "value": text}} for text in ("a", "nan")]
    oldest = {"type": "source_commit_time", "value": str(time.time() - 100)}
    others.append({**measure, "analytics": oldest})
    traces = [{"type": "TRACE", "trace": trace} for trace in (measure, *others)]
    lines = [*traces, record(id=1, name="a"), record(id=None, name=["odd"]), state(1)]
    keyed: dict[str, Any] = {"destination_sync_mode": "append_dedup", "primary_key": [["id"]]}
    script(own, lines, **keyed)
    result = materialize(own)
    assert result.success
    script(own, ["!exit 3"], **keyed)
    assert not materialize(own).success

    events = receiver.lineage
    assert [event["eventType"] for event in events] == ["START", "COMPLETE", "START", "FAIL"]
    for event in events:
        _validate(event)
        assert event["job"]["name"] == "scripted.things"
        (output,) = event["outputs"]
        assert (output["namespace"], output["name"]) == (
            "file",
            str(own.home / "lake" / "scripted" / "things"),
        )
        fields = output["facets"]["schema"]["fields"]
        assert [(column["name"], column["type"]) for column in fields] == [
            ("id", "integer"),
            ("name", "string"),
        ]
    start, complete, _, failed = events
    assert start["run"]["runId"] == complete["run"]["runId"]
    assert complete["run"]["facets"]["parent"]["run"]["runId"] == result.run_id
    assert complete["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 1
    assert "ended with exit code 3" in failed["run"]["facets"]["errorMessage"]["message"]

    values = receiver.metrics
    assert values["elt.sync.read"] == {"scripted,things": 2}
    assert values["elt.sync.committed"] == {"scripted,things": 1}
    assert values["elt.sync.rejected"] == {"scripted,things": 1}
    assert values["elt.sync.failures"] == {"scripted,things": 1}
    assert values["elt.sync.duration"] == {"scripted,things": 2}
    assert values["elt.sync.runs"] == {
        "COMPLETE,scripted,things": 1,
        "FAIL,scripted,things": 1,
    }
    assert values["elt.sync.bytes"]["scripted,things"] > 0
    assert values["elt.source.measure"]["queue,scripted"] == 7
    assert 100 <= values["elt.source.lag"]["scripted,things"] < 1000
    metadata = own.metadata("scripted", "things")
    assert [key for key in metadata if key.startswith("elt/measure/")] == ["elt/measure/queue"]
    assert metadata["elt/measure/queue"] == 7
    assert 100 <= metadata["elt/source_lag_seconds"] < 1000
    ((_, day),) = metadata["elt/days"].items()
    assert day[6] == metadata["elt/source_lag_seconds"]


@pytest.mark.usefixtures("spark_provider")
def test_the_destination_reports_as_dagster_does(
    tmp_path: Path, spark_provider: Any, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    destination = Destination(tmp_path, spark_provider)
    destination.write([stream()], [*records(1, 2), destination_state(2)])
    assert [event["eventType"] for event in receiver.lineage] == ["START", "COMPLETE"]
    (output,) = receiver.lineage[-1]["outputs"]
    assert output["name"] == str(destination.lake / "destination" / "users")
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 2
    assert receiver.metrics["elt.sync.committed"] == {"elt-destination,users": 2}


@pytest.mark.parametrize(("code", "delay"), [(500, 0), (200, 600)], ids=["errors", "silence"])
def test_a_broken_receiver_neither_fails_nor_delays_a_sync(
    own: Project, receiver: Receiver, code: int, delay: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observation, "MAX_WAIT", 0.5)
    receiver.code, receiver.delay = code, delay
    script(own, [state(1)])
    result = materialize(own)
    assert result.success
    assert "the lineage or metrics could not be delivered" in read_log(own, result)
    assert own.metadata("scripted", "things")["elt/sequence"] == 1


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OPENLINEAGE_URL": "http://127.0.0.1:9", "OPENLINEAGE_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_SDK_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_METRICS_EXPORTER": "none"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
    ],
)
def test_nothing_is_reported_unless_it_is_configured(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert create_receivers() == ([], [])


def test_a_missing_library_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:9/missing")
    monkeypatch.setitem(sys.modules, "openlineage.client", None)
    monkeypatch.delitem(sys.modules, "elt_assets.telemetry.lineage")
    receivers, (warning,) = create_receivers()
    assert receivers == []
    assert warning.endswith("install elt-assets[openlineage]")


@pytest.mark.parametrize(
    ("location", "name"),
    [
        ("/lake/shop/users", ("file", "/lake/shop/users")),
        ("file:///lake/shop/users", ("file", "/lake/shop/users")),
        ("s3://bucket/lake/shop/users", ("s3://bucket", "lake/shop/users")),
    ],
)
def test_tables_are_named_as_openlineage_defines(location: str, name: tuple[str, str]) -> None:
    assert dataset_name(location) == name


@pytest.mark.unit
def test_what_is_kept_does_not_grow_with_the_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A receiver is that of the process, and a sync may last for days."""
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "noop")
    lineage = Lineage()
    for number in range(100):
        report = StreamReport("shop", None, StreamId("users"), f"/lake/{number}", [])
        lineage.start(report)
        assert len(lineage._runs) == 1
        report.outcome = "COMPLETE"
        lineage.finish(report)
    assert lineage._runs == {}

    monkeypatch.setattr(observation, "MAX_CALLS", 10)
    is_free, calls = threading.Event(), list[int]()
    queue = observation.Delivery()
    queue.add(is_free.wait)
    for number in range(1_000):
        queue.add(partial(calls.append, number))
    assert "too slow" in (queue.error or "")
    is_free.set()
    queue.close()
    assert calls == list(range(len(calls))) and len(calls) <= 10
