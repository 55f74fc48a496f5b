"""Text files that commands write."""

from __future__ import annotations

from pathlib import Path

import pytest

from elt_assets.errors import ConfigError
from elt_assets.storage.folders import replace_text


def test_a_file_is_replaced_with_its_mode_and_its_line_breaks(tmp_path: Path) -> None:
    path = tmp_path / "defs.yaml"
    replace_text(path, "a\r\nb\n")
    path.chmod(0o600)
    replace_text(path, "b\r\n")
    assert path.read_bytes() == b"b\r\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"x\.yml cannot be written: Not a directory"):
        replace_text(tmp_path / "file" / "x.yml", "")
