"""The staging folder of documents: which programs see it, and when it is removed."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from elt_assets.protocol.message_rules import STAGING
from elt_assets.protocol.messages import RawRecord
from elt_assets.runner.connector import Connector
from elt_assets.runner.kinds import open_connector
from elt_assets.storage.staging import StagedFiles
from tests.support.connector_specs import spec_of
from tests.support.source import configure_streams

PROGRAM = """#!/bin/sh
if [ "$1" = spec ]; then
  echo '{"type": "SPEC", "spec": {"connectionSpecification": {}}}'
  exit
fi
f="$AIRBYTE_STAGING_DIRECTORY"
[ -n "$f" ] && echo content > "$f/a"
echo "{\\"type\\": \\"RECORD\\", \\"record\\": {\\"stream\\": \\"s\\", \\"data\\": {\\"id\\": 1},"\
 "\\"file_reference\\": {\\"staging_file_url\\": \\"$f/a\\"}}}"
"""


def open_program(folder: Path) -> Connector:
    program = folder / "program"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    return open_connector(spec_of("command", [str(program)], folder))


def read_document(connector: Connector) -> tuple[dict[str, int], str]:
    """The record, and the path of its document."""
    (record,) = [
        message
        for message in connector.read(configure_streams("s"))
        if isinstance(message, RawRecord)
    ]
    reference = json.loads(bytes(record.file_reference))
    return json.loads(bytes(record.data)), str(reference["staging_file_url"])


def test_a_source_has_the_folder_within_the_context(tmp_path: Path) -> None:
    connector = open_program(tmp_path)
    with connector.stage_documents() as folder:
        _, url = read_document(connector)
        with StagedFiles(folder).open(url) as document:
            assert document.read() == b"content\n"
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()
    assert read_document(connector)[1] == "/a"


def test_the_folder_of_a_killed_run_is_removed_by_the_next(tmp_path: Path) -> None:
    code = (
        "import os, pathlib; from tests.runner.test_staged_documents import open_program\n"
        f"with open_program(pathlib.Path({str(tmp_path)!r})).stage_documents() as folder:\n"
        "    (folder / 'a').write_text('1'); print(folder, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    left = Path(done.stdout.strip())
    assert (left / "a").exists()
    with open_program(tmp_path).stage_documents():
        assert not left.exists()


def test_a_container_sees_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for docker records its command line, and runs the program here."""
    client = tmp_path / "client.py"
    client.write_text(
        "import json, subprocess, sys\n"
        f"open({str(tmp_path / 'log')!r}, 'a').write(json.dumps(sys.argv[1:]) + '\\n')\n"
        "number = sys.argv.index('test/source:1')\n"
        f"sys.exit(subprocess.call([{str(tmp_path / 'program')!r}, *sys.argv[number + 1:]]))\n"
    )
    monkeypatch.setenv("ELT_DOCKER", f"{sys.executable} {client}")
    open_program(tmp_path)
    connector = open_connector(spec_of("image", "test/source:1", tmp_path))
    with connector.stage_documents() as folder:
        _, url = read_document(connector)
        with StagedFiles(folder).open(url) as document:
            assert document.read() == b"content\n"
    call = json.loads((tmp_path / "log").read_text().splitlines()[-1])
    pairs = list(itertools.pairwise(call))
    assert ("--volume", f"{folder}:{folder}") in pairs
    assert ("--env", STAGING) in pairs
