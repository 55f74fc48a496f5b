"""Files that another program stages: whatever it names, nothing outside of the folder is read or removed."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elt_assets.errors import SystemFailure
from elt_assets.storage.staging import MissingFile, StagedFiles

pytestmark = pytest.mark.unit
SECRET = b"a secret outside"


@pytest.fixture
def staged(tmp_path: Path) -> StagedFiles:
    folder = tmp_path / "staging"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(SECRET)
    (tmp_path / "staging-2").mkdir()
    (tmp_path / "staging-2" / "secret").write_bytes(SECRET)
    return StagedFiles(folder)


def read(staged: StagedFiles, url: str, size: float | None = None) -> bytes:
    with staged.open(url, size) as file:
        return file.read()


@pytest.mark.parametrize(
    "name", ["a.pdf", "sub/a b.pdf", "sub//./x", "über\n%41.txt", "x" * 255, "..a", "日本.bin"]
)
def test_a_staged_file_is_read_and_removed(staged: StagedFiles, name: str) -> None:
    path = staged.folder / name
    path.write_bytes(b"content")
    url = f"{staged.folder}/{name}"
    assert read(staged, url) == read(staged, url, 7) == read(staged, url, 7.0) == b"content"
    if "%" not in name:
        assert read(staged, f"file://{url}") == b"content"
    staged.remove(url)
    assert not path.exists()
    staged.remove(url)


def test_a_folder_may_be_named_by_a_link_to_it(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real" / "a").write_bytes(b"1")
    assert read(StagedFiles(tmp_path / "link"), str(tmp_path / "real" / "a")) == b"1"
    assert read(StagedFiles(tmp_path / "link"), str(tmp_path / "link" / "a")) == b"1"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("/etc/passwd", "not in the staging folder"),
        ("{}", "not in the staging folder"),
        ("{}/", "not in the staging folder"),
        ("{}/../secret", "not in the staging folder"),
        ("{}/sub/../../secret", "not in the staging folder"),
        ("{}-2/secret", "not in the staging folder"),
        ("secret", "not in the staging folder"),
        ("", "not in the staging folder"),
        ("s3://bucket/secret", "not in the staging folder"),
        ("file://{}/..%2Fsecret", "not in the staging folder"),
        ("{}/a\0b", "not in the staging folder"),
        ("{}/\ud800", "not in the staging folder"),
        ("{}/link", "is a link"),
        ("{}/folder-link/secret", "is a link"),
        ("{}/file/below", "is a link, or no folder"),
        ("{}/hard", "hard links"),
        ("{}/sub", "no file"),
        ("{}/pipe", "no file"),
        ("{}/missing", "there is no such file"),
        ("{}/missing/too", "there is no such file"),
        ("{}/" + "x" * 1000, "File name too long"),
    ],
)
def test_nothing_else_is_read_or_removed(staged: StagedFiles, url: str, reason: str) -> None:
    folder = staged.folder
    (folder / "file").write_bytes(b"1")
    (folder / "link").symlink_to(folder.parent / "secret")
    (folder / "folder-link").symlink_to(folder.parent / "staging-2")
    os.link(folder.parent / "secret", folder / "hard")
    os.mkfifo(folder / "pipe")
    url = url.format(folder)
    with pytest.raises(SystemFailure) as caught:
        staged.open(url)
    assert reason in str(caught.value)
    staged.remove(url)
    assert (folder.parent / "secret").read_bytes() == SECRET
    assert (folder.parent / "staging-2" / "secret").read_bytes() == SECRET


@pytest.mark.parametrize("size", [0, 6, 8, 7.5, -1])
def test_a_file_of_another_size_is_refused(staged: StagedFiles, size: float) -> None:
    (staged.folder / "a").write_bytes(b"content")
    with pytest.raises(SystemFailure, match="it has 7 bytes, and not"):
        staged.open(f"{staged.folder}/a", size)


@pytest.mark.parametrize("limit", [0, 6, 7, 8])
def test_a_file_is_read_up_to_a_limit(staged: StagedFiles, limit: int) -> None:
    path = staged.folder / "a"
    path.write_bytes(b"content")
    if limit >= 7:
        assert staged.read(str(path), limit) == b"content"
        return
    with pytest.raises(SystemFailure, match=f"it has more than {limit} bytes"):
        staged.read(str(path), limit)
    path.unlink()
    with pytest.raises(MissingFile):
        staged.read(str(path), limit)


@pytest.mark.parametrize("way", ["moved", "link"])
def test_another_folder_of_its_path_is_not_read(staged: StagedFiles, way: str) -> None:
    folder, other = staged.folder, staged.folder.parent / "staging-2"
    (folder / "secret").write_bytes(b"content")
    folder.rename(folder.parent / "elsewhere")
    other.rename(folder) if way == "moved" else folder.symlink_to(other)
    assert read(staged, str(folder / "secret")) == b"content"
    staged.remove(str(folder / "secret"))
    assert (folder / "secret").read_bytes() == SECRET


def test_a_folder_that_became_a_link_is_not_opened(staged: StagedFiles) -> None:
    folder = staged.folder
    folder.rename(folder.parent / "elsewhere")
    folder.symlink_to(folder.parent / "staging-2")
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        StagedFiles(folder, follows_link=False)


def test_no_folder_stays_open(tmp_path: Path) -> None:
    for _ in range(100):
        with pytest.raises(SystemFailure):
            StagedFiles(tmp_path).open(str(tmp_path / "none"))
    opened = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert not [name for name in opened if name.startswith(str(tmp_path))]


PARTS = st.lists(st.sampled_from(["..", ".", "", "sub", "link", "file", "\0", "é"]), max_size=6)


@given(PARTS)
def test_no_path_leads_out(parts: list[str]) -> None:
    """Whatever is made of parts, a file that can be opened is the one inside."""
    with TemporaryDirectory() as name:
        folder, inside = Path(name), Path(name, "in")
        (inside / "sub").mkdir(parents=True)
        for place in (inside, inside / "sub"):
            (place / "file").write_bytes(b"inside")
            (place / "link").symlink_to(folder)
        (folder / "file").write_bytes(SECRET)
        try:
            content = read(StagedFiles(inside), "/".join([str(inside), *parts]))
        except SystemFailure:
            return
        assert content == b"inside"
