"""Private directories: removed once their process has ended, and nothing else is."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from elt_assets.storage import folders
from elt_assets.storage.folders import LOCK, sweep

DAY = 86_400
HOLDER = """
import sys, time, pathlib
from elt_assets.storage.folders import scratch
with scratch(pathlib.Path(sys.argv[1]), "sync") as folder:
    (folder / "segment").write_text("rows")
    print(folder, flush=True)
    time.sleep(600)
"""


class Holder:
    """Another process that has a directory."""

    def __init__(self, parent: Path):
        command = [sys.executable, "-c", HOLDER, str(parent)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.folder = Path(self._process.stdout.readline().strip())

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def holder(tmp_path: Path) -> Holder:
    return Holder(tmp_path)


def leave(parent: Path) -> Path:
    with folders.scratch(parent, "sync") as folder:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    return folder


def make_old(folder: Path) -> None:
    then = time.time() - 10 * DAY
    for path in (*folder.iterdir(), folder):
        os.utime(path, (then, then))


@pytest.mark.usefixtures("any_umask")
def test_a_directory_is_private_and_removed_with_its_context(tmp_path: Path) -> None:
    leave(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
def test_only_directories_of_killed_processes_are_removed(tmp_path: Path, holder: Holder) -> None:
    leave(tmp_path)
    assert (holder.folder / "segment").exists()
    holder.kill()
    leave(tmp_path)
    assert not holder.folder.exists()


@pytest.mark.process
def test_a_directory_in_use_in_another_container_is_kept(
    tmp_path: Path, holder: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the host name nor a process id says whether a directory is in use."""
    with monkeypatch.context() as patched:
        patched.setattr(os, "kill", _no_such_process)
        leave(tmp_path)
    assert (holder.folder / "segment").exists()
    holder.kill()


def _no_such_process(*_: object) -> None:
    raise ProcessLookupError


@pytest.mark.process
def test_old_directories_of_other_machines_are_removed(tmp_path: Path, holder: Holder) -> None:
    holder.kill()
    moved = holder.folder.rename(tmp_path / holder.folder.name.replace("sync-", "sync-other-"))
    assert sweep(tmp_path, DAY) == 0
    make_old(moved)
    assert sweep(tmp_path, DAY) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
def test_an_old_directory_in_use_is_not_removed(tmp_path: Path, holder: Holder) -> None:
    make_old(holder.folder)
    assert sweep(tmp_path, DAY) == 0
    assert (holder.folder / "segment").exists()
    holder.kill()


@pytest.mark.parametrize("name", ["my-old-data", "sync-host-0123456789abcdef", f"a-b-{'0' * 16}"])
def test_other_directories_are_not_removed(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "kept").write_text("someone's")
    make_old(folder)
    assert sweep(tmp_path, DAY) == 0
    leave(tmp_path)
    assert (folder / "kept").exists()


def test_another_directory_with_a_lock_file_is_not_removed(tmp_path: Path) -> None:
    folder = tmp_path / "my-old-data"
    folder.mkdir()
    (folder / LOCK).touch()
    make_old(folder)
    assert sweep(tmp_path, DAY) == 0
