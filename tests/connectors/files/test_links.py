"""Whoever may write to the folder of a source cannot have other files of the machine read by a link."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from connectors.files import Files
from connectors.sdk.files.read_files import FileVersion
from elt_assets.errors import ConfigError
from tests.connectors.support import call, errors, records


@pytest.fixture
def drop(tmp_path: Path) -> Path:
    """A folder, beside which is a file that nobody should read."""
    (tmp_path / "drop" / "deep").mkdir(parents=True)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "secret.jsonl").write_text('{"key": "hunter2"}\n')
    (tmp_path / "drop" / "real.jsonl").write_text('{"key": "open"}\n')
    return tmp_path / "drop"


def read(folder: Path, **more: Any) -> list[dict[str, Any]]:
    streams = [{"name": "s", "glob": "**/*.jsonl", "format": "jsonl"}]
    config = {"location": str(folder), "streams": streams, **more}
    stream = {"name": "s", "json_schema": {}, "supported_sync_modes": ["full_refresh"]}
    modes = {"sync_mode": "full_refresh", "destination_sync_mode": "append"}
    catalog = {"streams": [{"stream": stream, **modes}]}
    _, messages = call(Files(), folder.parent, "read", config=config, catalog=catalog)
    return list(messages)


@pytest.mark.parametrize("link", ["a.jsonl", "deep/a.jsonl", "folder"])
def test_a_link_out_of_the_folder_is_an_error_by_its_name(drop: Path, link: str) -> None:
    target = drop.parent / ("own" if link == "folder" else "own/secret.jsonl")
    (drop / link).symlink_to(os.path.relpath(target, (drop / link).parent))
    messages = read(drop)
    (error,) = errors(messages)
    assert "is a link that leaves the location" in error["message"]
    assert link in error["message"]
    assert "hunter2" not in json.dumps(messages)
    assert "hunter2" in json.dumps(records(read(drop, follow_links=True)))


def test_a_link_within_the_folder_and_a_location_that_is_one_are_followed(drop: Path) -> None:
    (drop / "deep" / "a.jsonl").symlink_to("../real.jsonl")
    (drop.parent / "link").symlink_to("drop")
    assert len(records(read(drop.parent / "link"))) == 2


def test_a_file_that_becomes_a_link_after_it_was_checked_is_not_read(drop: Path) -> None:
    streams = [{"name": "s", "glob": "*.jsonl", "format": "jsonl"}]
    source = Files()
    storage = source.open_storage(source.parse({"location": str(drop), "streams": streams}))
    (drop / "real.jsonl").unlink()
    (drop / "real.jsonl").symlink_to("../own/secret.jsonl")
    for open_it in (storage.open_file, lambda file: storage.open_stream(file, "none")):
        with pytest.raises(ConfigError, match="leaves the location"):
            open_it(FileVersion(0, "real.jsonl", 19))
