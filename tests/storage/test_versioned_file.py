"""A file that several processes change: no change is lost, in a folder and in an object store."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from elt_assets.errors import ConfigError
from elt_assets.storage.location import Location
from elt_assets.storage.versioned_file import VersionedFile
from tests.support.object_store import new_bucket, s3_server


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with s3_server(tmp_path_factory.mktemp("s3") / "log") as address:
        yield address


@pytest.fixture(params=["folder", "store"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    if request.param == "folder":
        return Location(str(tmp_path / "vault" / "entry"))
    store = new_bucket(request.getfixturevalue("endpoint"))
    return Location.parse(f"{store.uri}/vault/an entry", store.options)


def add(text: str, file: VersionedFile) -> bytes:
    return file.change(lambda content: (content or b"") + text.encode())


def test_a_change_is_made_to_the_newest_version(folder: Location) -> None:
    file = VersionedFile(folder)
    assert file.read() is None
    assert add("a", file) == b"a"
    assert add("b", VersionedFile(folder)) == file.read() == b"ab"
    assert file.change(lambda content: content or b"") == b"ab"  # nothing is written
    for number in range(7):
        add(str(number), file)
    assert file.read() == b"ab0123456"


def test_no_change_of_several_writers_is_lost(folder: Location) -> None:
    file = VersionedFile(folder)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: add(f"{number} ", file), range(12)))
    content = file.read()
    assert content is not None and sorted(map(int, content.split())) == list(range(12))


def test_a_writer_that_is_slower_than_many_others_loses_no_change(folder: Location) -> None:
    file = VersionedFile(folder)
    add("a", file)
    pauses = iter([True])

    def add_slowly(content: bytes | None) -> bytes:
        if next(pauses, False):
            for number in range(8):
                add(str(number), file)
        return (content or b"") + b"b"

    assert file.change(add_slowly) == file.read() == b"a01234567b"


def test_old_versions_are_removed_and_files_are_private(tmp_path: Path) -> None:
    file = VersionedFile(Location(str(tmp_path / "vault" / "entry")))
    add("a", file)
    folder = tmp_path / "vault" / "entry"
    for version in range(2, 1_001):
        (folder / f"{version:012}").write_bytes(b"" if version < 990 else b"a")
        (folder / f"{version:012}").chmod(0o600)
    for number in range(10):
        add(str(number), file)
    files = sorted(folder.iterdir())
    assert [int(path.name) for path in files] == list(range(11, 1_011))
    assert [int(path.name) for path in files if path.stat().st_size] == list(range(1_006, 1_011))
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE((tmp_path / "vault").stat().st_mode) == 0o700


def test_a_store_without_conditional_writes_is_refused() -> None:
    with pytest.raises(ConfigError, match="no conditional writes"):
        VersionedFile(Location("hdfs://host/vault")).read()


def test_a_store_that_cannot_be_reached_is_an_error_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="Not a directory"):
        add("a", VersionedFile(Location(str(tmp_path / "file" / "entry"))))
