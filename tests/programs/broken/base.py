"""A source that follows all rules of the conformance kit; the other programs of this folder break one each.

It imports little, so it starts in milliseconds. `python -m tests.programs.broken.base GLOBAL read …` sends
states of that type.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

Json = dict[str, Any]

CONFIG = {"token": "hunter2-abc", "count": 5}
USERS, COLOURS = "users", "colours"
TEXT = {"type": "string"}


class Source:
    """The stream `users` is read incrementally, and a full refresh of `colours` can be resumed."""

    state_type = "STREAM"
    specification: ClassVar[Json] = {
        "type": "object",
        "required": ["token"],
        "properties": {
            "token": {"type": "string", "airbyte_secret": True},
            "count": {"type": "integer"},
        },
    }

    def __init__(self) -> None:
        self.config: Json = {}
        self.seen: dict[str, int] = {}
        self.saved: Json = {}

    def say(self, kind: str, **body: Any) -> None:
        print(json.dumps({"type": kind, **body}))

    def trace(self, kind: str, **body: Any) -> None:
        self.say("TRACE", trace={"type": kind, "emitted_at": 1.0, **body})

    def is_valid(self) -> bool:
        return isinstance(self.config.get("token"), str) and self.config.get("count", 1) != []

    def is_accepted(self) -> bool:
        return self.is_valid()

    def streams(self) -> list[Json]:
        schema = {"type": "object", "properties": {"id": {"type": "integer"}, "name": TEXT}}
        dated = {**schema["properties"], "updated": {**TEXT, "format": "date"}}  # type: ignore[dict-item]
        users = {
            "name": USERS,
            "json_schema": {"type": "object", "properties": dated},
            "supported_sync_modes": ["full_refresh", "incremental"],
            "source_defined_cursor": True,
            "default_cursor_field": ["updated"],
            "source_defined_primary_key": [["id"]],
        }
        colours = {
            "name": COLOURS,
            "json_schema": schema,
            "supported_sync_modes": ["full_refresh"],
            "is_resumable": self.state_type == "STREAM",
        }
        return [users, colours]

    def rows(self, stream: str) -> list[Json]:
        count = range(1, self.config["count"] + 1)
        rows: list[Json] = [{"id": n, "name": f"{stream} {n}"} for n in count]
        if stream == USERS:
            rows = [{**row, "updated": f"2026-01-0{row['id']}"} for row in rows]
        return rows

    def start(self, stream: str, seen: int, mode: str) -> int:
        """Return the row to begin with, after a state that covers `seen` rows."""
        is_resumed = mode == "incremental" or (stream == COLOURS and self.state_type == "STREAM")
        return seen if is_resumed else 0

    def status(self, stream: str, status: str) -> None:
        body = {"stream_descriptor": {"name": stream}, "status": status}
        self.trace("STREAM_STATUS", stream_status=body)

    def estimate(self, stream: str, rows: int) -> None:
        self.trace("ESTIMATE", estimate={"type": "STREAM", "name": stream, "row_estimate": rows})

    def record(self, stream: str, row: Json) -> None:
        self.say("RECORD", record={"stream": stream, "data": row, "emitted_at": 1})

    def state(self, stream: str, seen: int, records: int, *, is_last: bool) -> None:
        self.seen[stream] = seen
        bodies: Json = {
            "STREAM": {
                "stream": {
                    "stream_descriptor": {"name": stream},
                    "stream_state": {"seen": seen},
                }
            },
            "GLOBAL": {"global": {"shared_state": self.seen, "stream_states": []}},
            "LEGACY": {"data": self.seen},
        }
        stats = {"recordCount": float(records)}
        state = {"type": self.state_type, **bodies[self.state_type], "sourceStats": stats}
        self.say("STATE", state=state)

    def read(self, stream: str, mode: str) -> None:
        self.status(stream, "STARTED")
        rows = self.rows(stream)
        first = self.start(stream, self.seen.get(stream, 0), mode)
        self.estimate(stream, len(rows[first:]))
        since = 0
        for number, row in enumerate(rows[first:], first + 1):
            if number == first + 1:
                self.status(stream, "RUNNING")
            self.record(stream, row)
            since += 1
            if since == 2 and number < len(rows):
                self.state(stream, number, since, is_last=False)
                since = 0
        self.state(stream, len(rows), since, is_last=True)
        self.status(stream, "COMPLETE")

    def load(self, files: dict[str, Path]) -> None:
        self.config = json.loads(files["config"].read_text())
        states = json.loads(files["state"].read_text()) if "state" in files else []
        if isinstance(states, dict):
            self.seen = states
            return
        for state in states:
            if state["type"] == "GLOBAL":
                self.seen = state["global"]["shared_state"]
            else:
                name = state["stream"]["stream_descriptor"]["name"]
                self.saved[name] = state["stream"]["stream_state"]
                self.seen[name] = self.saved[name].get("seen", 0)

    def run(self, verb: str, files: dict[str, Path]) -> None:
        if verb == "spec":
            self.say("SPEC", spec={"connectionSpecification": self.specification})
            return
        self.load(files)
        if verb == "check":
            status = "SUCCEEDED" if self.is_accepted() else "FAILED"
            self.say("CONNECTION_STATUS", connectionStatus={"status": status})
        elif verb == "discover":
            self.say("CATALOG", catalog={"streams": self.streams()})
        elif verb == "read":
            catalog = json.loads(files["catalog"].read_text())
            for configured in catalog["streams"]:
                self.read(configured["stream"]["name"], configured["sync_mode"])

    def failed(self, error: Exception) -> int:
        """Report an error and return the exit code."""
        self.trace("ERROR", error={"message": f"{type(error).__name__}: {error}"})
        return 1


def main(source: Source, words: Sequence[str] | None = None) -> None:
    """Run the command that the arguments name; by default those of this process."""
    verb, *rest = sys.argv[1:] if words is None else words
    if verb.isupper():
        source.state_type = verb
        verb, *rest = rest
    files = {rest[n].removeprefix("--"): Path(rest[n + 1]) for n in range(0, len(rest), 2)}
    try:
        source.run(verb, files)
    except Exception as error:  # noqa: BLE001 - every error is reported
        sys.exit(source.failed(error))


if __name__ == "__main__":
    main(Source())
