"""The time of loading the definitions of many connections, beside the import of Dagster alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

from benchmarks.measure import Usage, usage
from benchmarks.report import Bar, Report, ratio
from elt_assets.connection import COMPONENT

SIZES = ((50, 20), (1, 1_000), (1, 2_000))
"""Projects that are loaded: the number of connections, and of the streams of each."""
FIELDS = 20
RUNS = 2
"""Number of measurements, of which the best one counts."""
_IMPORT = "import dagster"
_LOAD = "import elt_assets.definitions as d; d.defs.get_repository_def()"


@dataclass(frozen=True)
class Result:
    """A load: `core` is processor time in seconds."""

    name: str
    streams: int
    seconds: float
    core: float


def run(work: Path) -> Report:
    alone = _measure("import of dagster", 0, _IMPORT, work, {})
    loads = [_load(work, connections, streams) for connections, streams in SIZES]
    results = [alone, *loads]
    thousand, double = (load.core - alone.core for load in loads[1:])
    bars = [
        Bar("50 connections of 20 streams, of dagster's import", loads[0].core / alone.core, 6),
        Bar("2,000 streams, of 1,000, both less dagster's import", double / thousand, 2.2),
    ]
    rows = [
        (r.name, f"{r.seconds:.1f}", f"{r.core:.2f}", ratio(r.core, alone.core)) for r in results
    ]
    return Report(
        "Loading of definitions",
        ["what", "seconds", "core-s", "of the import"],
        rows,
        "processor time of one process, which imports and loads everything",
        bars,
        [asdict(result) for result in results],
    )


def _load(work: Path, connections: int, streams: int) -> Result:
    folder = work / f"loading_{connections}_{streams}"
    for number in range(connections):
        _write_connection(folder / f"c{number}", streams)
    name = f"{connections} connections of {streams:,} streams"
    return _measure(name, connections * streams, _LOAD, work, {"ELT_DEFS": str(folder)})


def _write_connection(folder: Path, streams: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    properties = {f"f{number}": {"type": ["null", "string"]} for number in range(FIELDS)}
    stream = {
        "json_schema": {"type": "object", "properties": properties},
        "supported_sync_modes": ["full_refresh", "incremental"],
        "source_defined_cursor": True,
        "default_cursor_field": ["f0"],
    }
    names = [f"s{number}" for number in range(streams)]
    catalog = {"streams": [{"name": name, **stream} for name in names]}
    (folder / "catalog.json").write_text(json.dumps(catalog))
    attributes = {
        "name": folder.name,
        "source": {"connector": "faker"},
        "streams": [{"name": name, "sync_mode": "incremental"} for name in names],
        "schedule": "@daily",
    }
    document = {"type": COMPONENT, "attributes": attributes}
    (folder / "defs.yaml").write_text(yaml.safe_dump(document))


def _measure(
    name: str, streams: int, code: str, work: Path, variables: Mapping[str, str]
) -> Result:
    settings = [f"{key}={value}" for key, value in variables.items()]
    command = ["env", *settings, sys.executable, "-W", "ignore", "-c", code]
    measurements: list[Usage] = [usage(command, work / "loading.log") for _ in range(RUNS)]
    best = min(measurements, key=lambda measurement: measurement.core)
    return Result(name, streams, best.seconds, best.core)
