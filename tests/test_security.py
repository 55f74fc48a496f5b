"""The examples in docs/security.md work as they stand there."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.connection.test_connection import load, written
from tests.documents import code_blocks
from tests.project import REPOSITORY

DOCUMENT = (REPOSITORY / "docs" / "security.md").read_text()


@pytest.mark.parametrize("example", code_blocks(DOCUMENT, "yaml"))
def test_each_documented_source_can_be_loaded(example: str, tmp_path: Path) -> None:
    load(tmp_path, written(**yaml.safe_load(example)))


def test_the_documented_commands_share_a_lake(tmp_path: Path) -> None:
    (commands,) = code_blocks(DOCUMENT, "sh")
    lake = tmp_path / "made" / "lake"
    subprocess.run(["sh", "-ec", commands], env={**os.environ, "ELT_LAKE": str(lake)}, check=True)
    assert stat.S_IMODE(lake.stat().st_mode) == 0o750


def test_each_documented_variable_is_used() -> None:
    section = DOCUMENT.split("## Variables")[1]
    named = re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE)
    sources = [path.read_text() for path in (REPOSITORY / "elt_assets").rglob("*.py")]
    assert len(named) == 3
    assert all(any(f'"{name}"' in source for source in sources) for name in named)


def test_the_readme_links_to_the_document() -> None:
    assert "(docs/security.md)" in (REPOSITORY / "README.md").read_text()
