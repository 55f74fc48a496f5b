"""Connectors that send slices which would run code, or open files, outside of their process."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.programs.scripted import record, script, state
from tests.programs.sliced_source import Numbers
from tests.support.project import REPOSITORY, Project, write_plugin
from tests.support.runs import failure_of, materialize

pytestmark = pytest.mark.usefixtures("spark")

MARK = "import pathlib\npathlib.Path({!r}).write_text('run')\n"


def slice_of(stream: str, **more: Any) -> dict[str, Any]:
    part = {"stream_descriptor": {"name": stream}, "key": "1", "data": {"number": 0}, **more}
    return {"type": "SLICE", "slice": part}


@pytest.fixture
def evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that can be imported, also by tasks. It leaves the file that is returned."""
    mark = tmp_path / "mark"
    folder = write_plugin(tmp_path / "evil", "evil", MARK.format(str(mark)), "x", "x = evil")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{REPOSITORY}")
    return mark


@pytest.mark.parametrize("stream", ["things", "others"])
def test_a_command_cannot_make_tasks_import_what_it_names(
    own: Project, evil: Path, stream: str
) -> None:
    part = slice_of(stream, reader="evil:Source", file="/etc/passwd")
    script(own, [record(id=1), state(1), part, record(id=2), state(2)])
    failure = failure_of(materialize(own, 'key:"scripted/things"'))
    assert f"sent a slice of stream '{stream}', which was not asked for slices" in failure
    assert "remove its connection" in failure
    assert own.committed_state("scripted", "things")["stream"]["stream_state"] == {"cursor": 1}
    assert not evil.exists()


HOSTILE = """
import os, sys
from pathlib import Path
from connectors.sdk import Checkpoint, Slice, Wait, run
from connectors.sdk.slice_files import find_slice_folder
from connectors.sdk.airbyte import output
from tests.programs.sliced_source import Numbers, Sliced

class Hostile(Numbers):
    def slices(self, configured, state):
        config, folder = self._config, find_slice_folder()
        exec(config["script"], {"folder": folder, "os": os, "Path": Path})
        output.import_module(output._FILES).name_file = str
        yield Slice("number 0", {"number": 0}, file=config["file"])
        yield Checkpoint({"done": 1})
        yield Wait()

class Source(Sliced):
    def streams(self, config):
        return [Hostile(config)]

if __name__ == "__main__":
    sys.exit(run(Source(), sys.argv[1:]))
"""


# `tests/storage/test_staged_files.py` has all forms of names and files.
@pytest.mark.parametrize(
    ("file", "script_", "reason"),
    [
        ("../../../etc/passwd", "", "not in the staging folder"),
        ("x", "os.symlink('/etc/passwd', folder / 'x')", "a part of it is a link"),
        ("x", "os.mkfifo(folder / 'x')", "it is no file"),
    ],
)
def test_files_of_slices_are_plain_files_in_the_folder_of_the_source(
    own: Project,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    file: str,
    script_: str,
    reason: str,
) -> None:
    site = write_plugin(tmp_path / "site", "any", HOSTILE, "elt_assets.connectors", "hostile = any")
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", f"{site}:{REPOSITORY}")
    config = {"slices": 1, "rows": 1, "file": file, "script": script_}
    folder = own.connection(
        "hostile",
        source={"connector": "hostile", "config": config},
        streams=[{"name": "numbers", "destination_sync_mode": "append"}],
    )
    catalog = {"streams": [json.loads(Numbers(config).describe().to_json())]}
    (folder / "catalog.json").write_text(json.dumps(catalog))
    failure = failure_of(materialize(own, 'key:"hostile/numbers"'))
    assert "a slice refers to the file" in failure and reason in failure
    assert "root:" not in failure and "evil" not in sys.modules
    assert not [*(own.home / "staging").glob("slices-*")]
