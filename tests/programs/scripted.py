"""A connector that says what a test wrote down: `python -m tests.programs.scripted FOLDER VERB …`.

FOLDER holds `spec.json` (a connectionSpecification), `catalog.json` and `read.jsonl`, whose lines go
out as they are; a line `!exit N`, `!kill` or `!sleep S` does that instead; `!once FILE` fails, for
something that passes, if FILE is not there, and makes it; `!stage NAME TEXT` puts a document into the
staging folder, whose path replaces `$STAGING` in other lines.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.programs.singer_program import end_on_command

if TYPE_CHECKING:  # a program that tests start hundreds of times
    from tests.support.project import Project


KEYED: dict[str, Any] = {
    "destination_sync_mode": "append_dedup",
    "primary_key": [["id"]],
    "history": True,
}
"""Settings of a stream whose rows have a key, and a history."""
PEOPLE = {
    "id": {"type": "integer", "description": "who it is"},
    "name": {"type": "string"},
}
"""Fields of its rows."""


def script(
    project: Project,
    lines: list[Any],
    *,
    name: str = "scripted",
    specification: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
    schema: dict[str, Any] | None = None,
    command: list[str] | None = None,
    described: dict[str, Any] | None = None,
    **stream: Any,
) -> None:
    """A connection with one stream, `things`, whose source says `lines` (objects become JSON).

    `described`: more of the stream in the catalog.
    """
    folder = project.root / f"{name}-source"
    folder.mkdir(exist_ok=True)
    properties = (
        schema if schema is not None else {"id": {"type": "integer"}, "name": {"type": "string"}}
    )
    things = {
        "name": "things",
        "json_schema": {"type": "object", "properties": properties},
        "supported_sync_modes": ["full_refresh", "incremental"],
        "source_defined_cursor": True,
        "default_cursor_field": ["id"],
        **(described or {}),
    }
    (folder / "spec.json").write_text(json.dumps(specification or {"type": "object"}))
    (folder / "catalog.json").write_text(json.dumps({"streams": [things]}))
    text = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    (folder / "read.jsonl").write_text("\n".join(text))
    settings = {"sync_mode": "incremental", "destination_sync_mode": "append", **stream}
    source = {
        "command": command or [sys.executable, "-m", "tests.programs.scripted", str(folder)],
        "config": config or {},
    }
    connection = project.connection(name, source=source, streams=[{"name": "things", **settings}])
    (connection / "catalog.json").write_text((folder / "catalog.json").read_text())


def record(**data: Any) -> dict[str, Any]:
    return {"type": "RECORD", "record": {"stream": "things", "data": data, "emitted_at": 1}}


def state(cursor: Any, *, field: str = "cursor", records: float | None = None) -> dict[str, Any]:
    """`records`: how many the source says it sent since its state before."""
    stream = {"stream_descriptor": {"name": "things"}, "stream_state": {field: cursor}}
    stats = {} if records is None else {"sourceStats": {"recordCount": records}}
    return {"type": "STATE", "state": {"type": "STREAM", "stream": stream, **stats}}


def status(value: str) -> dict[str, Any]:
    body = {"stream_descriptor": {"name": "things"}, "status": value}
    trace = {"type": "STREAM_STATUS", "emitted_at": 1.5, "stream_status": body}
    return {"type": "TRACE", "trace": trace}


def _say(folder: Path, verb: str) -> None:
    if verb == "spec":
        specification = json.loads((folder / "spec.json").read_text())
        print(json.dumps({"type": "SPEC", "spec": {"connectionSpecification": specification}}))
    elif verb == "discover":
        catalog = json.loads((folder / "catalog.json").read_text())
        print(json.dumps({"type": "CATALOG", "catalog": catalog}))
    elif verb == "check":
        print('{"type":"CONNECTION_STATUS","connectionStatus":{"status":"SUCCEEDED"}}')
    elif verb == "read":
        (folder / "arguments.json").write_text(json.dumps(sys.argv))
        if "--state" in sys.argv:
            state_file = Path(sys.argv[sys.argv.index("--state") + 1])
            (folder / "state.json").write_bytes(state_file.read_bytes())
        _read((folder / "read.jsonl").read_text().split("\n"))


def _read(lines: list[str]) -> None:
    for line in lines:
        command, _, argument = line.partition(" ")
        end_on_command(command, argument)
        if command == "!once":
            mark = Path(argument)
            if not mark.exists():
                mark.touch()
                error = {"message": "busy", "failure_type": "transient_error"}
                trace = {"type": "ERROR", "emitted_at": 1.5, "error": error}
                print(json.dumps({"type": "TRACE", "trace": trace}))
                sys.exit(1)
        elif command == "!stage":
            name, _, text = argument.partition(" ")
            path = Path(os.environ["AIRBYTE_STAGING_DIRECTORY"], name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        elif command == "!sleep":
            sys.stdout.flush()
            time.sleep(float(argument))
        elif line:
            staging = os.environ.get("AIRBYTE_STAGING_DIRECTORY", "$STAGING")
            sys.stdout.write(line.replace("$STAGING", staging) + "\n")


if __name__ == "__main__":
    _say(Path(sys.argv[1]), sys.argv[2])
