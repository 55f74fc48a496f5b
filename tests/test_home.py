"""The salt of hashed fields: where it comes from, and that it stays."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from elt_assets import home
from elt_assets.errors import ConfigError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ELT_HASH_SALT", raising=False)
    return tmp_path / "home"


def test_a_salt_is_made_once_and_for_its_owner_alone(folder: Path) -> None:
    salt = home.hash_salt()
    [path] = folder.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(bytes.fromhex(salt.decode())) == 32
    assert home.hash_salt() == salt == path.read_bytes().strip()


def test_the_variable_wins_and_takes_the_files_text(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    salt = home.hash_salt()
    monkeypatch.setenv("ELT_HASH_SALT", "påpper")
    assert home.hash_salt() == "påpper".encode()
    monkeypatch.setenv("ELT_HASH_SALT", (folder / home.SALT_FILE).read_text().strip())
    assert home.hash_salt() == salt
    monkeypatch.setenv("ELT_HASH_SALT", "")
    assert home.hash_salt() == salt


def test_where_the_variable_is_set_no_file_is_made(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELT_HASH_SALT", "x")
    home.hash_salt()
    assert not folder.exists()


def test_of_processes_that_ask_at_once_all_get_the_same(folder: Path) -> None:
    script = "import sys; sys.stdin.read(); from elt_assets import home; print(home.hash_salt())"
    command = [sys.executable, "-c", script]
    asking = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(6)
    ]
    for process in asking:
        assert process.stdin is not None
        process.stdin.close()
    answers = set()
    for process in asking:
        assert process.stdout is not None
        with process.stdout:
            answers.add(process.stdout.read())
        assert process.wait() == 0
    assert len(answers) == 1
    assert [path.name for path in folder.iterdir()] == [home.SALT_FILE]


def test_an_empty_salt_is_refused(folder: Path) -> None:
    folder.mkdir()
    (folder / home.SALT_FILE).write_text("\n")
    with pytest.raises(ConfigError, match=r"hash_salt, is empty\n.*backup"):
        home.hash_salt()


def test_a_salt_that_cannot_be_made_is_told(folder: Path) -> None:
    folder.write_text("no directory")
    with pytest.raises(ConfigError, match=r"hash_salt, cannot be read or made.*\n.*ELT_HASH_SALT"):
        home.hash_salt()


def test_a_fingerprint_tells_salts_apart_and_gives_none_away() -> None:
    one, other = home.fingerprint(b"one"), home.fingerprint(b"other")
    assert one == home.fingerprint(b"one") != other
    assert len(one) == 16
