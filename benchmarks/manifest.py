"""The cost of a low-code manifest in our engine and in airbyte-cdk: same manifest, same server.

The time of a read of one record is that of the start, which is left out.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import psutil
import yaml

from benchmarks import page_server, peers
from benchmarks.measure import CommandFailed, Usage, usage
from benchmarks.report import MISSING, Bar, Report
from connectors.declarative.source import ManifestSource

MANIFEST = Path(__file__).with_name("manifest.yaml")
COMPARED = 200_000
"""Records that both engines read."""
PAGE = 1_000
RUNS = 2
"""Number of measurements, of which the best one counts."""
STREAMS = 100
"""Streams of the manifest that is only loaded."""
FIELDS = 20
START_TIMEOUT = 60
"""Seconds to the first request, at most."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Engine:
    """A program that reads the manifest: the words of its command line before the verb, and after it."""

    name: str
    program: Sequence[str]
    options: Sequence[str] = ()

    def read(self, folder: Path) -> list[str]:
        files = ["--config", str(folder / "config.json"), "--catalog", str(folder / "catalog.json")]
        return [*self.program, "read", *files, *self.options]


@dataclass(frozen=True)
class Result:
    """A read. `seconds` and `core` are wall time and processor time without the start; `first_request` is the
    processor time until the first request; `peak_mb` is the memory of the process at its highest."""

    name: str
    records: int
    seconds: float
    core: float
    start: float
    first_request: float
    peak_mb: float

    @property
    def rate(self) -> float:
        return self.records / self.seconds

    @property
    def core_rate(self) -> float:
        """Records a second of one core."""
        return self.records / self.core


def run(work: Path, records: int, peer_folder: Path | None) -> Report:
    """Read with our engine, and a part of the records with the peer; then load a manifest of many streams.

    Args:
        records: of the large read that shows the memory.
        peer_folder: the folder of the peers' environments; None leaves them out.
    """
    compared = min(records, COMPARED)
    ours = Engine(
        "ours", [sys.executable, "-m", "connectors.declarative", "--manifest", str(MANIFEST)]
    )
    with (
        tempfile.TemporaryDirectory(prefix="manifest-", dir=work) as made,
        _serving(records) as url,
    ):
        folder = Path(made)
        (folder / "catalog.json").write_text(json.dumps(_catalog()))
        alone = _server_alone(url, compared)
        results = [
            _measured(ours, folder, url, compared),
            _measured(ours, folder, url, records, ", large"),
        ]
        if peer_folder is not None:
            results.append(_measured(_peer(peer_folder), folder, url, compared))
        load = _load_time(folder)
    return _report(results, compared / alone, load)


def _peer(folder: Path) -> Engine:
    version = peers.ensure(peers.AIRBYTE_CDK, folder)
    program = peers.interpreter(peers.AIRBYTE_CDK, folder).with_name(peers.AIRBYTE_CDK.script)
    return Engine(f"airbyte-cdk {version}", [str(program)], ["--manifest-path", str(MANIFEST)])


@contextlib.contextmanager
def _serving(records: int) -> Iterator[str]:
    """Run the server in a process of its own while the context lasts; yields its URL."""
    command = [sys.executable, "-m", "benchmarks.page_server", str(records)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def _server_alone(url: str, records: int) -> float:
    """Return the seconds that the server needs for the requests of a read; the client only receives."""
    connection = HTTPConnection(urllib.parse.urlsplit(url).netloc)
    given = {"since": _time(0), "until": _time(records), "limit": PAGE}
    start = time.perf_counter()
    for offset in range(0, records, PAGE):
        connection.request("GET", f"/orders?{urllib.parse.urlencode({**given, 'offset': offset})}")
        connection.getresponse().read()
    seconds = time.perf_counter() - start
    connection.close()
    return seconds


def _time(number: int) -> str:
    return page_server.time_of(number).strftime(page_server.TIME)


def _measured(engine: Engine, folder: Path, url: str, records: int, note: str = "") -> Result:
    print(f"manifest: {engine.name}, {records:,} records", file=sys.stderr)
    first_request = min(_to_first_request(engine, folder) for _ in range(RUNS))
    start, whole = (
        _best([_read(engine, folder, url, size) for _ in range(RUNS)]) for size in (1, records)
    )
    return Result(
        name=f"{engine.name}{note}",
        records=records,
        seconds=whole.seconds - start.seconds,
        core=whole.core - start.core,
        start=start.core,
        first_request=first_request,
        peak_mb=whole.peak_mb,
    )


def _best(runs: Sequence[Usage]) -> Usage:
    """Return the shortest times, and the highest memory."""
    return Usage(
        seconds=min(run.seconds for run in runs),
        core=min(run.core for run in runs),
        peak_mb=max(run.peak_mb for run in runs),
    )


def _read(engine: Engine, folder: Path, url: str, records: int) -> Usage:
    """Read the first records.

    Raises:
        CommandFailed: the engine failed, or another number of records came.
    """
    _configure(folder, url, records)
    output = folder / "output"
    found = usage(engine.read(folder), output)
    with output.open("rb") as lines:
        came = sum(b'"type":"RECORD"' in line[:20] for line in lines)
    if came != records:
        raise CommandFailed(f"{engine.name}: {came:,} of {records:,} records came")
    return found


def _to_first_request(engine: Engine, folder: Path) -> float:
    """Return the seconds of processor time until the first request, which is not answered."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(START_TIMEOUT)
        _configure(folder, f"http://127.0.0.1:{listening.getsockname()[1]}", 1)
        quiet = subprocess.DEVNULL
        with subprocess.Popen(engine.read(folder), stdout=quiet, stderr=quiet) as process:
            try:
                connection, _ = listening.accept()
                with connection:
                    connection.recv(1)
                    used = psutil.Process(process.pid).cpu_times()
            finally:
                process.kill()
    return used.user + used.system


def _configure(folder: Path, url: str, records: int) -> None:
    config = {"url": url, "end": _time(records - 1)}
    (folder / "config.json").write_text(json.dumps(config))


def _catalog() -> Json:
    stream = {
        "name": "orders",
        "json_schema": {},
        "supported_sync_modes": ["full_refresh", "incremental"],
        "source_defined_cursor": True,
        "default_cursor_field": ["updated_at"],
    }
    modes = {"sync_mode": "incremental", "destination_sync_mode": "append"}
    return {"streams": [{"stream": stream, **modes, "cursor_field": ["updated_at"]}]}


def _load_time(folder: Path) -> float:
    """Return the seconds of processor time to load a manifest of many streams and to list them."""
    path = folder / "many.yaml"
    path.write_text(yaml.safe_dump(_many_streams(), sort_keys=False))
    source = ManifestSource(path)
    start = time.process_time()
    found = source.open({"url": "http://127.0.0.1", "end": _time(0)})
    seconds = time.process_time() - start
    if len(found) != STREAMS:
        raise CommandFailed(f"{len(found)} of {STREAMS} streams were loaded")
    return seconds


def _many_streams() -> Json:
    """Return the manifest with many streams, which share its components by references."""
    written: Json = yaml.safe_load(MANIFEST.read_text())
    (stream,) = written["streams"]
    retriever = stream["retriever"]
    shared = {
        "requester": retriever["requester"],
        "paginator": retriever["paginator"],
        "by_time": stream["incremental_sync"],
    }
    streams = [_stream(stream, number) for number in range(STREAMS)]
    return {**written, "streams": streams, "definitions": shared}


def _stream(like: Mapping[str, Any], number: int) -> Json:
    properties = {f"field_{n}": {"type": ["null", "string"]} for n in range(FIELDS)}
    return {
        **like,
        "name": f"orders_{number}",
        "$parameters": {"path": f"/orders/{number}"},
        "schema_loader": {
            "type": "InlineSchemaLoader",
            "schema": {"type": "object", "properties": properties},
        },
        "retriever": {
            **like["retriever"],
            "requester": {
                "$ref": "#/definitions/requester",
                "path": "{{ parameters['path'] }}",
            },
            "paginator": {"$ref": "#/definitions/paginator"},
        },
        "incremental_sync": {"$ref": "#/definitions/by_time"},
    }


def _report(results: Sequence[Result], server: float, load: float) -> Report:
    ours, large, *theirs = results
    rows = [
        [
            each.name,
            f"{each.records:,}",
            f"{each.seconds:.2f}",
            f"{each.core:.2f}",
            f"{each.rate / 1000:,.0f}",
            f"{each.core_rate / 1000:,.0f}",
            f"{each.start:.2f}",
            f"{each.first_request:.2f}",
            f"{each.peak_mb:.0f}",
        ]
        for each in results
    ]
    alone = ["the server alone", f"{ours.records:,}", f"{ours.records / server:.2f}", MISSING]
    rows.append([*alone, f"{server / 1000:,.0f}", *[MISSING] * 4])
    wall = core = None
    for each in theirs:
        wall, core = ours.rate / each.rate, ours.core_rate / each.core_rate
    return Report(
        title="a low-code manifest",
        headings=[
            "engine",
            "records",
            "seconds",
            "s core",
            "k records/s",
            "k records/s core",
            "start, s core",
            "first request, s core",
            "memory MB",
        ],
        rows=rows,
        note="seconds, s core and records/s: without the start, which is a read of one record; the server "
        "alone: the same requests by a client that only receives",
        bars=[
            Bar("records/s beside airbyte-cdk", wall, 6, least=True),
            Bar("records/s of one core beside airbyte-cdk", core, 6, least=True),
            Bar("start to the first request", ours.first_request, 0.5, " s core"),
            Bar("memory of the large read", large.peak_mb, 150, " MB"),
            Bar(f"loading a manifest of {STREAMS} streams", load, 0.3, " s core"),
        ],
        figures=[
            *(asdict(each) | {"rate": each.rate, "core_rate": each.core_rate} for each in results),
            {"name": "the server alone", "rate": server},
        ],
    )
