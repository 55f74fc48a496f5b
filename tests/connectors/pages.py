"""Sources that pages of the documentation show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.project import REPOSITORY


def write_source(page: str, package: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write the source of a page as a package, which other processes find too; return its name.

    Args:
        page: the name of the file in `docs`; its first two programs are the package and its `__main__`.
    """
    text = (REPOSITORY / "docs" / page).read_text()
    (folder / package).mkdir()
    programs = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    for name, program in zip(("__init__", "__main__"), programs, strict=False):
        (folder / package / f"{name}.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return package
