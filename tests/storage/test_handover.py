"""Files handed over to tasks: by their path, or through an object store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from elt_assets.storage.handover import handover, sweep
from elt_assets.storage.location import Location
from tests.object_store import ObjectStore, new_bucket, s3_server

pytestmark = pytest.mark.process


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ObjectStore]:
    with s3_server(tmp_path / "s3.log") as endpoint:
        yield new_bucket(endpoint)


def read(place: Location) -> bytes:
    system, path = place.file_system()
    with system.open_input_file(path) as source:
        return bytes(source.read())


def test_a_local_file_stays_where_it_is(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"a\n")
    with handover(Location.of(str(tmp_path))) as given:
        place = given.offer(file)
        assert place.path == file and read(place) == b"a\n"
        given.withdraw(place)
    assert file.exists()


def test_a_file_is_uploaded_and_removed(tmp_path: Path, store: ObjectStore) -> None:
    file, content = tmp_path / "lines", bytes(range(256)) * (1 << 15)
    file.write_bytes(content)
    staging = Location.of(f"s3://{store.bucket}/staging", store.options)
    with handover(staging) as given:
        first, second = given.offer(file), given.offer(file)
        assert read(first) == read(second) == content
        given.withdraw(first)
        assert len(store.objects()) == 1
    assert store.objects() == []


def test_a_sweep_removes_only_old_files_of_handovers(tmp_path: Path, store: ObjectStore) -> None:
    """What a killed process left; another program's object stays."""
    file = tmp_path / "lines"
    file.write_bytes(b"a\n")
    with store.system.open_output_stream(f"{store.bucket}/staging/notes") as sink:
        sink.write(b"other")
    staging = Location.of(f"s3://{store.bucket}/staging", store.options)
    with handover(staging) as given:
        given.offer(file)
        assert sweep(staging, 3600) == 0 and len(store.objects()) == 2
        assert sweep(staging, -3600) == 1
    assert store.objects() == [f"{store.bucket}/staging/notes"]
