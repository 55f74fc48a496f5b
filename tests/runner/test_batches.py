"""Files of a BATCH: from where, how, and how much of them is read."""

from __future__ import annotations

import gzip
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from elt_assets.errors import ConfigError, EltError, SystemFailure
from elt_assets.protocol.singer import Encoding
from elt_assets.runner.singer_batches import BatchFiles, file_root

PLAIN, GZIP = Encoding("jsonl"), Encoding("jsonl", "gzip")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def lines(root: Path, url: str, encoding: Encoding = PLAIN, longest: int = 1 << 20) -> list[bytes]:
    return list(BatchFiles([root], longest)(url, encoding))


def refusal(root: Path, url: str, encoding: Encoding = PLAIN) -> EltError:
    with pytest.raises(EltError) as failure:
        lines(root, url, encoding)
    return failure.value


@pytest.mark.parametrize("name", ["a.json", "ä b%20#?.json", "deep/er/a.json"])
def test_file_names_in_urls_are_decoded(root: Path, name: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b'{"a":"\xe2\x80\xa8"}\n\n{"b":1}')
    found = [b'{"a":"\xe2\x80\xa8"}', b'{"b":1}']
    assert lines(root, path.as_uri()) == found
    assert lines(root, path.as_uri().replace("file://", "file://localhost")) == found
    assert lines(root, path.as_uri(), Encoding("jsonl", "none")) == found


@pytest.mark.parametrize(
    "url",
    [
        *("file:///etc/passwd", "{root}/../secret", "{root}/%2e%2e/secret", "{root}x/a"),
        *("{root}/link", "{root}/folder/secret"),
    ],
)
def test_files_outside_the_folder_are_refused(root: Path, url: str) -> None:
    secret = root.parent / "secret"
    secret.write_text("{}")
    (root / "link").symlink_to(secret)
    (root / "folder").symlink_to(root.parent)
    failure = refusal(root, url.format(root=root.as_uri()))
    assert "in none of the allowed folders" in failure.message or "is a link" in failure.message
    assert str(root) in str(failure)


def test_the_folder_of_the_config_may_be_a_link(root: Path, tmp_path: Path) -> None:
    (root / "a").write_text("{}")
    (tmp_path / "other").symlink_to(root)
    for name in ("other", "root"):
        assert lines(tmp_path / "other", (tmp_path / name / "a").as_uri()) == [b"{}"]


def test_each_of_several_folders_is_read(root: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    files = BatchFiles([root, other], 1 << 20)
    for folder in (root, other):
        (folder / "a").write_text("{}")
        assert list(files((folder / "a").as_uri(), PLAIN)) == [b"{}"]


def test_a_missing_folder_is_created_for_this_user_alone(tmp_path: Path) -> None:
    BatchFiles([tmp_path / "a" / "b"], 1)
    assert [path.stat().st_mode & 0o777 for path in (tmp_path / "a").rglob("*")] == [0o700]


@pytest.mark.parametrize("kind", ["folder", "pipe", "link", "hard link"])
def test_only_plain_files_of_one_name_are_read(root: Path, kind: str) -> None:
    path = root / "x"
    (root / "a").write_text("{}")
    make: dict[str, Callable[[], None]] = {
        "folder": path.mkdir,
        "pipe": lambda: os.mkfifo(path),
        "link": lambda: path.symlink_to(root / "a"),
        "hard link": lambda: path.hardlink_to(root / "a"),
    }
    make[kind]()
    failure = refusal(root, path.as_uri())
    assert isinstance(failure, SystemFailure) and f"the file {str(path)!r}" in failure.message


@pytest.mark.parametrize(
    "url",
    ["s3://bucket/a", "/plain/path", "file://host/a", "file:relative", "file:///a%00b", "", "//[", "file://"],
)  # fmt: skip
def test_only_files_of_this_machine_are_read(root: Path, url: str) -> None:
    failure = refusal(root, url)
    assert isinstance(failure, ConfigError) and "not on this machine" in failure.message


@pytest.mark.parametrize(
    "encoding", [Encoding("parquet"), Encoding("jsonl", "zstd"), Encoding("csv", "gzip")]
)
def test_other_encodings_are_refused(root: Path, encoding: Encoding) -> None:
    failure = refusal(root, (root / "a").as_uri(), encoding)
    assert isinstance(failure, ConfigError)
    assert encoding.format in failure.message and "format: jsonl" in str(failure)


def test_a_missing_file_is_an_error(root: Path) -> None:
    failure = refusal(root, (root / "none").as_uri())
    assert isinstance(failure, SystemFailure) and "there is no such file" in failure.message


@pytest.mark.parametrize("damage", ["torn", "not compressed", "changed", "empty"])
def test_an_incomplete_or_damaged_file_is_an_error(root: Path, damage: str) -> None:
    whole = gzip.compress(os.urandom(1 << 16).hex().encode())
    held = {
        "torn": whole[:-20],
        "not compressed": b'{"id":1}',
        "changed": whole[:-8] + b"\0" * 8,
        "empty": whole[:5],
    }
    (root / "a").write_bytes(held[damage])
    failure = refusal(root, (root / "a").as_uri(), GZIP)
    assert isinstance(failure, SystemFailure) and "is incomplete or damaged" in failure.message


def test_a_line_that_is_too_long_is_an_error(root: Path) -> None:
    (root / "a").write_bytes(b'{"a":"' + b"x" * (2 << 20) + b'"}')
    with pytest.raises(SystemFailure, match=r"a sent a line longer than 1 MiB"):
        lines(root, (root / "a").as_uri())


def test_memory_does_not_grow_with_the_file_size(root: Path) -> None:
    row = b'{"id":1,"text":"' + os.urandom(200).hex().encode() + b'"}\n'
    (root / "a").write_bytes(gzip.compress(row * 200_000, 1))
    tracemalloc.start()
    count = sum(1 for _ in BatchFiles([root], 1 << 20)((root / "a").as_uri(), GZIP))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 200_000 and peak < 16 << 20


def test_the_folder_of_a_file_url_is_found() -> None:
    assert file_root("file:///a%20b/c") == Path("/a b/c")
    for other in ("s3://bucket", "/a", "", None, 5, "file://host/a"):
        assert file_root(other) is None
