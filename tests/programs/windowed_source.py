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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from connectors.sdk import Checkpoint, Stream, run
from connectors.sdk.items import Estimate, Item
from elt_assets.errors import TransientError
from elt_assets.protocol.airbyte.catalog import FULL_REFRESH, INCREMENTAL, ConfiguredStream
from tests.programs.simple_source import SimpleSource

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
    catalog = {"streams": [json.loads(each.describe().to_json()) for each in _streams({})]}
    (folder / "catalog.json").write_text(json.dumps(catalog))
    return calls


def calls(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def reconfigure(project: Project, name: str, **config: Any) -> None:
    """Change some of the source's config."""
    path = project.root / "defs" / name / "defs.yaml"
    document = yaml.safe_load(path.read_text())
    document["attributes"]["source"]["config"].update(config)
    path.write_text(yaml.safe_dump(document))


class Readings(Stream):
    name = "readings"
    json_schema = {  # noqa: RUF012 - as the SDK has it
        "type": "object",
        "description": "What the stations measured.",
        "properties": {
            "station": {**_TEXT, "description": "Where it was measured."},
            "at": {**_TEXT, "format": "date-time"},
            "value": {"type": "integer"},
        },
    }
    primary_key = (("station",), ("at",))
    cursor_field = ("at",)
    source_defined_cursor = True
    supported_sync_modes = (FULL_REFRESH, INCREMENTAL)

    def __init__(self, config: dict[str, Any]):
        self._config = config

    def read(self, configured: ConfiguredStream, state: dict[str, Any] | None) -> Iterator[Item]:
        config = self._config
        if "calls" in config:
            with Path(config["calls"]).open("a") as file:
                call = {"config": config, "state": state, "pid": os.getpid()}
                file.write(json.dumps(call) + "\n")
        at, end = _moment(config.get("from", OPENED)), _moment(config.get("to", NOW))
        if state is not None:
            at = max(at, _moment(state["at"]) + dt.timedelta(hours=1))
        stations = [config["station"]] if "station" in config else STATIONS
        yield Estimate(len(stations) * int((end - at) / dt.timedelta(hours=1)))
        while at < end:
            if config.get("fails_at") == at.isoformat():
                raise TransientError("the line is dead")
            while config.get("hangs_at") == at.isoformat():
                time.sleep(1)
            value = at.hour * config.get("factor", 1)
            yield from ({"station": s, "at": at.isoformat(), "value": value} for s in stations)
            at += dt.timedelta(hours=1)
            if at.hour == 0:
                yield Checkpoint({"at": (at - dt.timedelta(hours=1)).isoformat()})


class Stations(Stream):
    name = "stations"
    json_schema = {  # noqa: RUF012 - as the SDK has it
        "type": "object",
        "properties": {"id": _TEXT},
    }
    primary_key = (("id",),)

    def __init__(self, config: dict[str, Any]):
        self._names = config.get("stations", STATIONS)

    def read(self, configured: ConfiguredStream, state: dict[str, Any] | None) -> Iterator[Item]:
        yield from ({"id": name} for name in self._names)


def _moment(text: str) -> dt.datetime:
    found = dt.datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=dt.timezone.utc)


def _streams(config: dict[str, Any]) -> list[Stream]:
    return [Readings(config), Stations(config)]


class Weather(SimpleSource):
    name = "weather"

    def streams(self, config: dict[str, Any]) -> Sequence[Stream]:
        return _streams(config)


if __name__ == "__main__":
    sys.exit(run(Weather(), sys.argv[1:]))
