"""The protocol of a source in plain Python: a program that imports no SDK starts in a fifth of the time.

Tests start such programs hundreds of times.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

Json = dict[str, Any]
Message = tuple[str, Any]
Read = Callable[[Json, Json | None], Iterator[Message]]
"""Reads a stream with a config, from a state on."""


class SourceError(Exception):
    """A failure of the source that passes."""


def record(data: Json) -> Message:
    return "RECORD", data


def checkpoint(state: Json) -> Message:
    return "STATE", state


def estimate(rows: int) -> Message:
    return "ESTIMATE", rows


class PlainStream:
    """A stream: its entry in the catalog, and how it is read."""

    def __init__(self, name: str, read: Read, **described: Any):
        self.name, self.read = name, read
        modes = ["full_refresh", "incremental"] if "default_cursor_field" in described else []
        described.setdefault("supported_sync_modes", modes or ["full_refresh"])
        described.setdefault("source_defined_cursor", bool(modes))
        self.described = {"name": name, **described}

    def messages(self, config: Json, state: Json | None) -> Iterator[Json]:
        """Yield the messages of one read, as the SDK does.

        Raises:
            SourceError: the source failed; the last message says so.
        """
        descriptor = {"name": self.name}
        is_running, count = False, 0
        yield self._status("STARTED")
        try:
            for kind, value in self.read(config, state):
                if kind == "ESTIMATE":
                    body = {"name": self.name, "type": "STREAM", "row_estimate": value}
                    yield _trace("ESTIMATE", estimate=body)
                elif kind == "RECORD":
                    if not is_running:
                        yield self._status("RUNNING")
                    is_running, count = True, count + 1
                    body = {"stream": self.name, "data": value, "emitted_at": _now()}
                    yield {"type": "RECORD", "record": body}
                else:
                    body = {"stream_descriptor": descriptor, "stream_state": value}
                    stats = {"recordCount": count}  # since the state before
                    body = {"type": "STREAM", "stream": body, "sourceStats": stats}
                    yield {"type": "STATE", "state": body}
                    count = 0
        except SourceError as error:
            failure = {"message": str(error), "failure_type": "transient_error"}
            yield _trace("ERROR", error={**failure, "stream_descriptor": descriptor})
            yield self._status("INCOMPLETE")
            raise
        yield self._status("COMPLETE")

    def _status(self, status: str) -> Json:
        body = {"stream_descriptor": {"name": self.name}, "status": status}
        return _trace("STREAM_STATUS", stream_status=body)


def catalog_of(streams: Sequence[PlainStream]) -> Json:
    return {"streams": [stream.described for stream in streams]}


def run(streams: Sequence[PlainStream], arguments: Sequence[str]) -> int:
    """Run one command of a source of these streams; return the exit code."""
    options = {word: path for word, path in pairwise(arguments) if word.startswith("--")}
    files = {word: json.loads(Path(path).read_text()) for word, path in options.items()}
    verb = arguments[0]
    if verb == "spec":
        _say({"type": "SPEC", "spec": {"connectionSpecification": {"type": "object"}}})
    elif verb == "check":
        _say({"type": "CONNECTION_STATUS", "connectionStatus": {"status": "SUCCEEDED"}})
    elif verb == "discover":
        _say({"type": "CATALOG", "catalog": catalog_of(streams)})
    elif verb == "read":
        return _read(streams, files["--config"], files["--catalog"], files.get("--state", []))
    else:
        print(f"unknown command: {verb}", file=sys.stderr)
        return 2
    return 0


def _read(streams: Sequence[PlainStream], config: Json, catalog: Json, states: list[Json]) -> int:
    by_name = {stream.name: stream for stream in streams}
    of_streams = [state["stream"] for state in states if state["type"] == "STREAM"]
    last = {state["stream_descriptor"]["name"]: state["stream_state"] for state in of_streams}
    code = 0
    for configured in catalog["streams"]:
        name = configured["stream"]["name"]
        try:
            for message in by_name[name].messages(config, last.get(name)):
                _say(message)
        except SourceError:
            code = 1
    return code


def _trace(kind: str, **body: Json) -> Json:
    return {"type": "TRACE", "trace": {"type": kind, "emitted_at": _now(), **body}}


def _say(message: Json) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    if message["type"] != "RECORD":
        sys.stdout.flush()


def _now() -> int:
    return int(time.time() * 1000)
