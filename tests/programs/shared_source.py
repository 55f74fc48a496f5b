"""A source that reads one log of changes for all of its streams.

Usage: `python -m tests.programs.shared_source VERB …`.

Its config: `log`, a file with a line `stream id` for each change; `kind`: of its states: GLOBAL (one
position, and which streams were read before), LEGACY (a position for each stream), OPAQUE (LEGACY, one
position), STREAM (which takes LEGACY's too), MIXED (GLOBAL for `users`, STREAM for the others); `fail`: a
stream that fails at its first change; `recovers`: it fails in the first read only, with a transient
error; `every`: changes between states; `dies_at`: the change at which it ends with exit code 1; `mute`: it
tells no status. It writes what it was given to `<log>.given`, a line for each read.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a program that tests start hundreds of times
    from tests.support.project import Project

STREAMS = ("users", "orders")
SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, "at": {"type": "integer"}}}


def connection(
    project: Project,
    *,
    together: bool = True,
    config: Mapping[str, Any] | None = None,
    **stream: Any,
) -> Path:
    """A connection `shop` whose streams are incremental; returns the log, which is empty."""
    log = project.root / "log"
    log.touch()
    wanted = {"sync_mode": "incremental", "destination_sync_mode": "append_dedup", **stream}
    source = {
        "command": [sys.executable, "-m", "tests.programs.shared_source"],
        "config": {"log": str(log), **(config or {})},
    }
    folder = project.connection(
        "shop",
        source=source,
        streams=[{"name": name, **wanted} for name in STREAMS],
        read_together=together,
    )
    (folder / "catalog.json").write_text(json.dumps(_catalog()))
    return log


def append(log: Path, *changes: tuple[str, int]) -> None:
    with log.open("a") as file:
        file.writelines(f"{stream} {number}\n" for stream, number in changes)


def given(log: Path) -> list[dict[str, Any]]:
    """Return the input of each read so far: the streams, and the state, None if there was none."""
    path = Path(f"{log}.given")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _catalog() -> dict[str, Any]:
    return {
        "streams": [
            {
                "name": name,
                "json_schema": SCHEMA,
                "supported_sync_modes": ["full_refresh", "incremental"],
                "source_defined_cursor": True,
                "default_cursor_field": ["at"],
                "source_defined_primary_key": [["id"]],
            }
            for name in STREAMS
        ]
    }


def _say(kind: str, **body: Any) -> None:
    print(json.dumps({"type": kind, **body}), flush=True)


def _mixed_position(states: Sequence[Any], name: str) -> Any:
    """Return where a stream goes on: `users` by the GLOBAL state alone, others by their own state alone."""
    if name == "users":
        positions = [one["global"]["shared_state"]["position"] for one in states if "global" in one]
        return positions[0] if positions else 0
    own = [one["stream"] for one in states if "stream" in one]
    blobs = [one["stream_state"] for one in own if one["stream_descriptor"]["name"] == name]
    return blobs[0]["position"] if blobs else 0


def _begin(config: Mapping[str, Any], state: Any, streams: Sequence[str]) -> dict[str, Any]:
    """Return where each stream goes on."""
    if state is None:
        return dict.fromkeys(streams, 0)
    if isinstance(state, dict):
        position: int = state.get("position", 0)
        return {name: state.get(name, position) for name in streams}
    if config["kind"] == "MIXED":
        return {name: _mixed_position(state, name) for name in streams}
    if config["kind"] == "GLOBAL":
        (known_state,) = state
        known = [
            each["stream_descriptor"]["name"] for each in known_state["global"]["stream_states"]
        ]
        position = known_state["global"]["shared_state"]["position"]
        return {name: position if name in known else 0 for name in streams}
    own = {each["stream"]["stream_descriptor"]["name"]: each["stream"] for each in state}
    found = {name: (own.get(name) or {}).get("stream_state") or 0 for name in streams}
    return {name: at["position"] if isinstance(at, dict) else at for name, at in found.items()}


def _states(config: Mapping[str, Any], streams: Sequence[str], at: int, sent: int) -> None:
    stats = {"sourceStats": {"recordCount": float(sent)}}
    kind = config["kind"]
    descriptors = [{"name": name} for name in streams]
    if kind == "GLOBAL":
        states = [{"stream_descriptor": one, "stream_state": {"seen": True}} for one in descriptors]
        body = {"shared_state": {"position": at}, "stream_states": states}
        _say("STATE", state={"type": "GLOBAL", "global": body, **stats})
    elif kind == "MIXED":
        if "users" in streams:
            states = [{"stream_descriptor": {"name": "users"}, "stream_state": {"seen": True}}]
            body = {"shared_state": {"position": at}, "stream_states": states}
            _say("STATE", state={"type": "GLOBAL", "global": body})
        _states({**config, "kind": "STREAM"}, [one for one in streams if one != "users"], at, sent)
    elif kind == "STREAM":
        for one in descriptors:
            body = {"stream_descriptor": one, "stream_state": {"position": at}}
            _say("STATE", state={"type": "STREAM", "stream": body})
    else:
        data = dict.fromkeys(streams, at) if kind == "LEGACY" else {"position": at}
        _say("STATE", state={"type": "LEGACY", "data": data, **stats})


def _read(config: Mapping[str, Any], streams: Sequence[str], state: Any) -> None:
    with Path(f"{config['log']}.given").open("a") as file:
        file.write(json.dumps({"streams": list(streams), "state": state}) + "\n")
    begin, sent, failed = _begin(config, state, streams), 0, set()
    calls = len(Path(f"{config['log']}.given").read_text().splitlines())
    failing = None if config.get("recovers") and calls > 1 else config.get("fail")
    failure_type = "transient_error" if config.get("recovers") else "system_error"
    changes = Path(config["log"]).read_text().splitlines()
    for number, change in enumerate(changes, 1):
        name, text = change.split()
        if number == config.get("dies_at"):
            sys.exit(1)
        if name not in streams or number <= begin[name] or name in failed:
            continue
        if failing == name:
            failed.add(name)
            error: dict[str, Any] = {"message": "no such table", "failure_type": failure_type}
            error["stream_descriptor"] = {"name": name}
            _say("TRACE", trace={"type": "ERROR", "emitted_at": 1.0, "error": error})
            continue
        data = {"id": int(text), "at": number}
        _say("RECORD", record={"stream": name, "data": data, "emitted_at": 1})
        sent += 1
        if number % config.get("every", 1000) == 0:
            _states(config, streams, number, sent)
            sent = 0
    _states(config, streams, len(changes), sent)
    for name in streams:
        if name not in failed and not config.get("mute"):
            body = {"stream_descriptor": {"name": name}, "status": "COMPLETE"}
            _say("TRACE", trace={"type": "STREAM_STATUS", "emitted_at": 1, "stream_status": body})
    sys.exit(1 if failed else 0)


def main() -> None:
    verb, files = sys.argv[1], dict(zip(sys.argv[2::2], sys.argv[3::2], strict=True))
    content = {name[2:]: json.loads(Path(path).read_text()) for name, path in files.items()}
    if verb == "spec":
        _say("SPEC", spec={"connectionSpecification": {"type": "object"}})
    elif verb == "discover":
        _say("CATALOG", catalog=_catalog())
    elif verb == "check":
        _say("CONNECTION_STATUS", connectionStatus={"status": "SUCCEEDED"})
    else:
        streams = [each["stream"]["name"] for each in content["catalog"]["streams"]]
        config = {"kind": "GLOBAL", **content["config"]}
        _read(config, streams, content.get("state"))


if __name__ == "__main__":
    main()
