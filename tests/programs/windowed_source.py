"""A source of readings, one an hour for each station: `python -m tests.programs.windowed_source VERB …`.

Its config bounds what it reads, as those of many connectors do: `from` (in it), `to` (not in it any more),
`station`. `value` of a reading is its hour times `factor`, so that a source can be seen to have changed.
`calls`: a file that gets a line of JSON for each read: the config and the state that it was given, and its
process. `fails_at`: a reading at which it breaks. `hangs_at`: one before which it waits for ever.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.programs import plain_source as plain

if TYPE_CHECKING:  # a program that tests start hundreds of times
    from tests.support.project import Project

STATIONS = ("north", "south")
OPENED, NOW = "2026-01-01", "2026-02-01"
_TEXT = {"type": "string"}


def windowed(
    project: Project,
    name: str = "weather",
    stream: str = "readings",
    config: Any = None,
    **how: Any,
) -> Path:
    """A connection to it, with one stream; returns the file of its calls."""
    calls = project.root / f"{name}-calls"
    settings = {"calls": str(calls), **(config or {})}
    folder = project.connection(
        name,
        source={
            "command": [sys.executable, "-m", "tests.programs.windowed_source"],
            "config": settings,
        },
        streams=[{"name": stream, "destination_sync_mode": "append", **how}],
    )
    (folder / "catalog.json").write_text(json.dumps(plain.catalog_of(STREAMS)))
    return calls


def calls(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _read_readings(config: plain.Json, state: plain.Json | None) -> Iterator[plain.Message]:
    if "calls" in config:
        with Path(config["calls"]).open("a") as file:
            call = {"config": config, "state": state, "pid": os.getpid()}
            file.write(json.dumps(call) + "\n")
    at, end = _moment(config.get("from", OPENED)), _moment(config.get("to", NOW))
    if state is not None:
        at = max(at, _moment(state["at"]) + dt.timedelta(hours=1))
    stations = [config["station"]] if "station" in config else STATIONS
    yield plain.estimate(len(stations) * int((end - at) / dt.timedelta(hours=1)))
    while at < end:
        if config.get("fails_at") == at.isoformat():
            raise plain.SourceError("the line is dead")
        while config.get("hangs_at") == at.isoformat():
            sys.stdout.flush()
            time.sleep(1)
        value = at.hour * config.get("factor", 1)
        for station in stations:
            yield plain.record({"station": station, "at": at.isoformat(), "value": value})
        at += dt.timedelta(hours=1)
        if at.hour == 0:
            yield plain.checkpoint({"at": (at - dt.timedelta(hours=1)).isoformat()})


def _read_stations(config: plain.Json, _: plain.Json | None) -> Iterator[plain.Message]:
    yield from (plain.record({"id": name}) for name in config.get("stations", STATIONS))


def _moment(text: str) -> dt.datetime:
    found = dt.datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=dt.timezone.utc)


STREAMS = [
    plain.PlainStream(
        "readings",
        _read_readings,
        json_schema={
            "type": "object",
            "description": "What the stations measured.",
            "properties": {
                "station": {**_TEXT, "description": "Where it was measured."},
                "at": {**_TEXT, "format": "date-time"},
                "value": {"type": "integer"},
            },
        },
        source_defined_primary_key=[["station"], ["at"]],
        default_cursor_field=["at"],
    ),
    plain.PlainStream(
        "stations",
        _read_stations,
        json_schema={"type": "object", "properties": {"id": _TEXT}},
        source_defined_primary_key=[["id"]],
    ),
]


if __name__ == "__main__":
    sys.exit(plain.run(STREAMS, sys.argv[1:]))
