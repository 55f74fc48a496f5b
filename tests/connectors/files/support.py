"""Reads of files, both ways: by the connector's process, and by slices as tasks do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from connectors.files import Files
from connectors.sdk.slices import SliceReader
from tests.connectors.support import Json, call, errors, records
from tests.support.object_store import KEY, REGION, SECRET, ObjectStore


class Reader:
    """A source over a folder. `own`: a folder for the files of commands."""

    def __init__(self, own: Path, streams: list[Json], location: str, **config: Any):
        self.own = own
        self.config: Json = {"location": location, "streams": streams, **config}

    def discover(self) -> dict[str, Json]:
        """The streams of the catalog, by their names."""
        code, messages = call(Files(), self.own, "discover", config=self.config)
        assert code == 0, messages
        return {stream["name"]: stream for stream in messages[-1]["catalog"]["streams"]}

    def properties(self) -> dict[str, Json]:
        """The columns of the only stream, without those of its files."""
        (stream,) = self.discover().values()
        return {n: s for n, s in stream["json_schema"]["properties"].items() if n[:6] != "_file_"}

    def catalog(self, mode: str = "incremental", **extra: Any) -> Json:
        modes = {"sync_mode": mode, "destination_sync_mode": "append", **extra}
        return {"streams": [{"stream": stream, **modes} for stream in self.discover().values()]}

    def run(self, state: Any = None, **options: Any) -> tuple[int, list[Json]]:
        catalog = options.pop("catalog", None) or self.catalog(**options)
        states = {} if state is None else {"state": [state]}
        return call(Files(), self.own, "read", config=self.config, catalog=catalog, **states)

    def read(self, state: Any = None, **options: Any) -> list[Any]:
        """The records, without the columns of their files, after a check that slices have the same."""
        catalog = options.pop("catalog", None) or self.catalog(**options)
        code, messages = self.run(state, catalog=catalog)
        assert code == 0, errors(messages)
        sliced = self.read_slices(state, catalog)
        assert sliced == [json_of(row) for row in records(messages)]
        return [plain(row) for row in records(messages)]

    def read_slices(self, state: Any, catalog: Json) -> list[Any]:
        """The records of all slices, each read by a reader of its own."""
        (configured,) = catalog["streams"]
        asked = {"streams": [{**configured, "slices": True}]}
        code, messages = self.run(state, catalog=asked)
        assert code == 0, errors(messages)
        rows = []
        for message in messages:
            if message["type"] != "SLICE":
                continue
            part = message["slice"]
            files = [json.dumps(value).encode() for value in (self.config, configured)]
            reader = SliceReader("connectors.files", *files)
            for batch in reader.read(json.dumps(part["data"]).encode()):
                lines = reader.write_lines(batch, 1)
                rows += [json_of(json.loads(line)["data"]) for line in lines.splitlines()]
        return rows

    def fail(self, **options: Any) -> str:
        """The error of a read that fails."""
        code, messages = self.run(**options)
        assert code != 0
        (error,) = errors(messages)
        assert error["failure_type"] != "system_error", error
        return str(error["message"])


def last_state(messages: list[Json]) -> Json:
    state: Json = [m["state"] for m in messages if m["type"] == "STATE"][-1]
    return state


def plain(row: Any) -> Any:
    return {n: v for n, v in row.items() if n[:6] != "_file_"} if isinstance(row, dict) else row


def json_of(row: Any) -> str:
    return json.dumps(row, sort_keys=True)


def s3_options(store: ObjectStore, **changes: Any) -> Json:
    """The options of a source for a bucket of the tests."""
    options = {"access_key_id": KEY, "secret_access_key": SECRET, "region": REGION}
    return {**options, "endpoint": store.endpoint, **changes}
