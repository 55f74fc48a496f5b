"""Folders whose writers attack their reader."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from connectors.files import Files
from connectors.sdk.files import file_systems
from tests.connectors.files.support import Reader
from tests.connectors.support import call, records
from tests.programs.hostile_files import ATTACKS


@pytest.mark.parametrize("name", ATTACKS)
def test_a_folder_is_read_or_its_error_names_the_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_systems, "MAX_LINKED", 1000)
    attack, folder = ATTACKS[name], tmp_path / "in"
    folder.mkdir()
    (folder / "good.jsonl").write_text('{"n": 1}\n')
    stream = {"name": "s", "glob": "**", "format": "jsonl", "columns": {"n": "integer"}}
    begin = time.monotonic()
    attack.put(folder)
    if attack.error is None:
        code, messages = Reader(tmp_path, [stream], str(folder)).run()
        assert code == 0 and len(records(messages)) == 1 + attack.rows
    else:
        config = {"location": str(folder), "streams": [stream]}
        _, messages = call(Files(), tmp_path, "check", config=config)
        status = messages[-1]["connectionStatus"]
        assert status["status"] == "FAILED" and re.search(attack.error, status["message"])
    assert time.monotonic() - begin < 20  # half a second, and what a busy machine adds
