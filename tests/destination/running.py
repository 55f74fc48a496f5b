"""Runs `elt-destination` in this process, on the tests' own Spark session."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from elt_assets.destination import main
from elt_assets.lake.session import SparkProvider

Json = dict[str, Any]
PROPERTIES = {"id": {"type": "integer"}, "name": {"type": "string"}}


def stream(
    name: str = "users",
    mode: str = "append",
    *,
    namespace: str | None = None,
    properties: Json | None = None,
    **configured: Any,
) -> Json:
    """A configured stream. Keyed by `id` where its mode needs a key."""
    described: Json = {"name": name, "json_schema": {"properties": properties or PROPERTIES}}
    if namespace is not None:
        described["namespace"] = namespace
    key = {"primary_key": [["id"]]} if mode.endswith("dedup") else {}
    modes = {"sync_mode": "full_refresh", "destination_sync_mode": mode}
    return {"stream": described, **modes, **key, **configured}


def record(data: Any, name: str = "users", **more: Any) -> Json:
    return {"type": "RECORD", "record": {"stream": name, "data": data, "emitted_at": 1, **more}}


def records(*ids: Any, name: str = "users") -> list[Json]:
    return [record({"id": number, "name": f"user {number}"}, name) for number in ids]


def state(value: Any, name: str = "users", **more: Any) -> Json:
    body = {"stream_descriptor": {"name": name}, "stream_state": value}
    return {"type": "STATE", "state": {"type": "STREAM", "stream": body, **more}}


def make_shared_state(value: Any, *names: str, **more: Any) -> Json:
    """A GLOBAL state."""
    states = [{"stream_descriptor": {"name": name}, "stream_state": {}} for name in names]
    body = {"shared_state": value, "stream_states": states}
    return {"type": "STATE", "state": {"type": "GLOBAL", "global": body, **more}}


def legacy(value: Any, **more: Any) -> Json:
    return {"type": "STATE", "state": {"data": value, **more}}


def status(value: str, name: str = "users") -> Json:
    body = {"stream_descriptor": {"name": name}, "status": value}
    trace = {"type": "STREAM_STATUS", "emitted_at": 1.5, "stream_status": body}
    return {"type": "TRACE", "trace": trace}


def lines(messages: Sequence[Json | bytes]) -> bytes:
    """Objects as JSON, bytes as they are, a line each."""
    encoded = (
        message if isinstance(message, bytes) else json.dumps(message).encode()
        for message in messages
    )
    return b"".join(line + b"\n" for line in encoded)


@dataclass
class Answer:
    """The output: every line is a message."""

    code: int
    output: bytes

    @property
    def messages(self) -> list[Json]:
        messages = [json.loads(line) for line in self.output.splitlines()]
        assert all("type" in message for message in messages)
        return messages

    @property
    def states(self) -> list[Json]:
        return [message for message in self.messages if message["type"] == "STATE"]

    @property
    def values(self) -> list[Any]:
        """Return the numbers of the states."""
        values = []
        for message in self.states:
            body = message["state"]
            if "stream" in body:
                values.append(body["stream"]["stream_state"])
            else:
                values.append(body["global"]["shared_state"] if "global" in body else body["data"])
        return values

    @property
    def counts(self) -> list[tuple[float, float]]:
        """Committed and rejected, of each state."""
        stats = [message["state"]["destinationStats"] for message in self.states]
        return [(stat["recordCount"], stat.get("rejectedRecordCount", 0)) for stat in stats]

    @property
    def logs(self) -> str:
        texts = [message["log"]["message"] for message in self.messages if message["type"] == "LOG"]
        return "\n".join(texts)

    @property
    def errors(self) -> list[Json]:
        traces = [message["trace"] for message in self.messages if message["type"] == "TRACE"]
        assert all(trace["type"] == "ERROR" and trace["emitted_at"] for trace in traces)
        return [trace["error"] for trace in traces]

    @property
    def error(self) -> Json:
        (error,) = self.errors
        return error


@dataclass
class Destination:
    """`elt-destination` with a lake of a test's own. `config`: besides the lake."""

    folder: Path
    spark: SparkProvider | None
    config: Json = field(default_factory=dict)

    @property
    def lake(self) -> Path:
        return self.folder / "lake"

    def file(self, name: str, content: Any) -> str:
        path = self.folder / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    @property
    def config_file(self) -> str:
        return self.file("config.json", {"lake": str(self.lake), **self.config})

    def arguments(self, *streams: Json) -> list[str]:
        """Return the command line of `write`."""
        catalog = self.file("catalog.json", {"streams": list(streams)})
        return ["write", "--config", self.config_file, "--catalog", catalog]

    def run(
        self, argv: Sequence[str], stdin: bytes = b"", stdout: io.BytesIO | None = None
    ) -> Answer:
        output = stdout or io.BytesIO()
        code = main(argv, io.BytesIO(stdin), output, self.spark)
        return Answer(code, output.getvalue())

    def write(
        self,
        streams: Sequence[Json],
        messages: Sequence[Json | bytes],
        *,
        code: int = 0,
        stdout: io.BytesIO | None = None,
    ) -> Answer:
        answer = self.run(self.arguments(*streams), lines(messages), stdout)
        assert answer.code == code, answer.output.decode()
        return answer

    def check(self) -> Json:
        answer = self.run(["check", "--config", self.config_file])
        (message,) = answer.messages
        assert (answer.code, message["type"]) == (0, "CONNECTION_STATUS")
        status: Json = message["connectionStatus"]
        return status

    def table(self, *path: str) -> DeltaTable:
        return DeltaTable(str(self.lake.joinpath("destination", *(path or ["users"]))))

    def rows(self, *path: str) -> list[Json]:
        """Read the rows with an independent reader, without this project's columns."""
        rows = self.table(*path).to_pyarrow_table().to_pylist()
        return [{k: v for k, v in row.items() if not k.startswith("_airbyte")} for row in rows]

    def ids(self, *path: str) -> list[int]:
        return sorted(row["id"] for row in self.rows(*path))
