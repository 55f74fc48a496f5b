"""A Singer tap that says what a test wrote down.

Its folder holds `catalog.txt`, which `--discover` prints, `about.txt`, if it is one that can be asked, and
`read.jsonl`; their lines go out as they are, but for the commands of `tests.programs.singer_program`. It
leaves what it was given in `given.json`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elt_assets.runner.singer_tap import SingerTap
from tests.programs import singer_program
from tests.support.connector_specs import command_spec

USERS = {
    "tap_stream_id": "db-users",
    "stream": "users",
    "key_properties": ["id"],
    "schema": {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "name": {"type": ["null", "string"]}},
    },
    "metadata": [{"breadcrumb": [], "metadata": {"replication-key": "id"}}],
}
SCHEMA = {
    "type": "SCHEMA",
    "stream": "users",
    "schema": USERS["schema"],
    "key_properties": ["id"],
    "bookmark_properties": ["id"],
}


def record(**data: Any) -> dict[str, Any]:
    return {"type": "RECORD", "stream": "users", "record": data}


def state(cursor: Any) -> dict[str, Any]:
    return {
        "type": "STATE",
        "value": {"bookmarks": {"db-users": {"replication_key_value": cursor}}},
    }


def written(
    folder: Path, lines: Sequence[Any] = (), *, catalog: str | None = None, about: str | None = None
) -> list[str]:
    """The command of a tap that says `lines` (objects become JSON)."""
    folder.mkdir(exist_ok=True)
    text = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    (folder / "read.jsonl").write_text("\n".join(text))
    (folder / "catalog.txt").write_text(
        json.dumps({"streams": [USERS]}, indent=2) if catalog is None else catalog
    )
    if about is not None:
        (folder / "about.txt").write_text(about)
    return [sys.executable, "-IS", singer_program.__file__, str(folder)]


def tap(
    folder: Path, lines: Sequence[Any] = (), config: Mapping[str, Any] | None = None, **more: Any
) -> SingerTap:
    """The same as a connector, with `folder / "work"` for its private files."""
    command = written(folder / "tap", lines, **more)
    return SingerTap(command_spec(command, config or {}, folder / "work", "hostile"))


def given(folder: Path) -> dict[str, Any]:
    """The input of the tap: `arguments`, and the files that they name."""
    return dict(json.loads((folder / "tap" / "given.json").read_text()))
