"""Files that users put beside their connections are not checked by `make check`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.project import BIN, REPOSITORY


@pytest.mark.process
@pytest.mark.parametrize("check", ["ruff check .", "ruff format --check .", "mypy elt_assets"])
@pytest.mark.parametrize(("folder", "code"), [("defs", 0), ("lake", 1)])
def test_files_of_users_are_not_checked(tmp_path: Path, check: str, folder: str, code: int) -> None:
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path)
    (tmp_path / "elt_assets" / folder).mkdir(parents=True)
    for name in ("", f"{folder}/"):
        (tmp_path / "elt_assets" / name / "__init__.py").touch()
    (tmp_path / "elt_assets" / folder / "mine.py").write_text("import os\ndef f( x ): return x\n")
    program, *words = check.split()
    command = [str(BIN / program), *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
