"""Commands of sources, run in this process, and their messages."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from connectors.sdk import Source, run

Json = dict[str, Any]


def output_of(source: Source, folder: Path, *words: str, **files: Any) -> tuple[int, bytes]:
    """The exit code and the output of a command. Files are given by their content."""
    argv = list(words)
    for name, content in files.items():
        path = folder / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        argv += [f"--{name}", str(path)]
    stdout = io.BytesIO()
    return run(source, argv, stdout), stdout.getvalue()


def call(source: Source, folder: Path, *words: str, **files: Any) -> tuple[int, list[Json]]:
    """The exit code and the messages of a command. Files are given by their content."""
    code, output = output_of(source, folder, *words, **files)
    return code, [json.loads(line) for line in output.splitlines()]


def catalog(*streams: str | Json, mode: str = "full_refresh") -> Json:
    """A configured catalog; a name stands for a stream with an empty schema."""
    modes = {"sync_mode": mode, "destination_sync_mode": "append"}
    described = [{"name": s, "json_schema": {}} if isinstance(s, str) else s for s in streams]
    return {"streams": [{"stream": each, **modes} for each in described]}


def records(messages: Iterable[Json]) -> list[Json]:
    return [each["record"]["data"] for each in messages if each["type"] == "RECORD"]


def errors(messages: Iterable[Json]) -> list[Json]:
    return [m["trace"]["error"] for m in messages if m.get("trace", {}).get("type") == "ERROR"]
