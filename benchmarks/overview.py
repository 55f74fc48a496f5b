"""`elt status` of a project with 200 streams, beside `dagster asset list` of the same project.

One stream is synced; its table and its events are copied for the others, as syncs of theirs would leave them.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import yaml
from dagster._core.events.log import EventLogEntry
from dagster._serdes import deserialize_value, serialize_value

from benchmarks.measure import CommandFailed, Usage, usage
from benchmarks.report import Bar, Report, ratio
from elt_assets.connection import COMPONENT

ROOT = Path(__file__).parents[1]
CONNECTIONS, STREAMS = 10, 20
"""The project: its connections, and the streams of each."""
RUNS = 3
"""Number of measurements, of which the best one counts."""
_STREAM = {
    "name": "products",
    "sync_mode": "incremental",
    "destination_sync_mode": "append_dedup",
}
_EVENTS = {
    dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED,
    dg.DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED,
    dg.DagsterEventType.ASSET_MATERIALIZATION,
    dg.DagsterEventType.ASSET_CHECK_EVALUATION,
}


@dataclass(frozen=True)
class Result:
    """A command: `core` is processor time in seconds."""

    name: str
    seconds: float
    core: float


def run(work: Path) -> Report:
    folder = work / "overview"
    shutil.rmtree(folder, ignore_errors=True)
    variables = {
        "DAGSTER_HOME": str(folder / "home"),
        "ELT_DEFS": str(folder / "defs"),
        "ELT_SPARK_ARCHIVE": "off",
        "PYTHONWARNINGS": "ignore",
    }
    _make_project(folder, work, variables)
    commands = {
        "dagster asset list": ["-m", "dagster", "asset", "list", "-m", "elt_assets.definitions"],
        "elt status": ["-m", "elt_assets.cli", "status"],
        "elt status --html": ["-m", "elt_assets.cli", "status", "--html", str(folder / "s.html")],
    }
    results = [_measure(name, words, work, variables) for name, words in commands.items()]
    listing, status, page = results
    size = (folder / "s.html").stat().st_size / 1e6
    return Report(
        f"The status of {CONNECTIONS * STREAMS} streams",
        ["what", "seconds", "core-s", "of the list"],
        [
            (r.name, f"{r.seconds:.1f}", f"{r.core:.2f}", ratio(r.core, listing.core))
            for r in results
        ],
        f"processor time of whole processes, the best of {RUNS}; the page has {size:.2f} MB",
        [
            Bar("elt status, of dagster asset list", status.core / listing.core, 1.5),
            Bar("the page", size, 2, " MB"),
        ],
        [asdict(result) for result in (listing, status, page)],
    )


def _measure(name: str, words: Sequence[str], work: Path, variables: Mapping[str, str]) -> Result:
    settings = [f"{key}={value}" for key, value in variables.items()]
    command = ["env", *settings, sys.executable, *words]
    measurements: list[Usage] = [usage(command, work / "overview.log") for _ in range(RUNS)]
    best = min(measurements, key=lambda measurement: measurement.core)
    return Result(name, best.seconds, best.core)


def _make_project(folder: Path, work: Path, variables: Mapping[str, str]) -> None:
    (folder / "home").mkdir(parents=True)
    shutil.copy(ROOT / "dagster_home" / "dagster.yaml", folder / "home")
    _write_connection(folder, "template", [_STREAM])
    for words in (["discover", "template"], ["sync", "template"]):
        _measure("template", ["-m", "elt_assets.cli", *words], work, variables)
    path = folder / "defs" / "template" / "catalog.json"
    streams = json.loads(path.read_text())["streams"]
    products = next(stream for stream in streams if stream["name"] == _STREAM["name"])
    shutil.rmtree(path.parent)
    with dg.DagsterInstance.from_config(str(folder / "home")) as instance:
        events = _read_events(instance)
        for number in range(CONNECTIONS):
            names = [f"s{place}" for place in range(STREAMS)]
            connection = f"c{number}"
            _write_connection(folder, connection, [{**_STREAM, "name": name} for name in names])
            catalog = {"streams": [{**products, "name": name} for name in names]}
            (folder / "defs" / connection / "catalog.json").write_text(json.dumps(catalog))
            for name in names:
                _copy_table(folder / "home" / "lake", connection, name)
                _copy_events(instance, events, connection, name)


def _write_connection(folder: Path, name: str, streams: Sequence[Mapping[str, Any]]) -> None:
    place = folder / "defs" / name
    place.mkdir(parents=True)
    attributes = {
        "name": name,
        "source": {"connector": "faker", "config": {"count": 20}},
        "streams": list(streams),
        "schedule": "0 6 * * *",
    }
    document = {"type": COMPONENT, "attributes": attributes}
    (place / "defs.yaml").write_text(yaml.safe_dump(document))


def _copy_table(lake: Path, connection: str, name: str) -> None:
    place = lake / connection / name
    shutil.copytree(lake / "template" / "products", place)
    for path in (place / "_delta_log").glob("*.json"):
        path.write_text(_rename(path.read_text(), connection, name))


def _read_events(instance: dg.DagsterInstance) -> list[EventLogEntry]:
    """Return the events of the stream in its last sync.

    Raises:
        CommandFailed: it was not materialised.
    """
    run = instance.get_runs(limit=1)[0]
    entries = [
        record.event_log_entry for record in instance.get_records_for_run(run.run_id).records
    ]
    events = [
        entry
        for entry in entries
        if entry.dagster_event is not None
        and entry.dagster_event.event_type in _EVENTS
        and '["template", "products"]' in serialize_value(entry)
    ]
    if not events:
        raise CommandFailed("the sync of the stream that is copied left no event")
    return events


def _copy_events(
    instance: dg.DagsterInstance, events: Sequence[EventLogEntry], connection: str, name: str
) -> None:
    for event in events:
        text = _rename(serialize_value(event), connection, name)
        instance.event_log_storage.store_event(deserialize_value(text, EventLogEntry))


def _rename(text: str, connection: str, name: str) -> str:
    """Return a text about the stream that is copied as one about another stream."""
    return (
        text.replace('["template", "products"]', f'["{connection}", "{name}"]')
        .replace("template/products", f"{connection}/{name}")
        .replace("template__products", f"{connection}__{name}")
    )
