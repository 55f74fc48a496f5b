"""Sources of files in other places than those of the source `files`, by file systems of fsspec."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from pydantic import BaseModel

from connectors.sdk.files import FilesSource, FilesSourceConfig, FileStreamConfig, RecordFormat
from connectors.sdk.files.file_systems import _find_time, wrap_file_system
from connectors.testing import Kit
from elt_assets.errors import EltError, SystemFailure, TransientError
from tests.connectors.files.support import last_state
from tests.connectors.pages import write_source
from tests.connectors.support import Json, call, errors, records

pytestmark = pytest.mark.unit

DAY = datetime(2024, 5, 1, tzinfo=timezone.utc)


class Lost(Exception):
    """An error of a file system that is none of the system's."""


class Store(MemoryFileSystem):  # type: ignore[misc] # fsspec has no types
    """Files in memory. `failing`: a method that raises `Lost`."""

    store: dict[str, Any] = {}  # noqa: RUF012 - as the base class has it
    cachable = False
    failing = ""

    def info(self, path: str, **options: Any) -> Any:
        if self.failing == "info":
            raise Lost("the line was cut")
        return super().info(path, **options)

    def find(self, path: str, *args: Any, **options: Any) -> Any:
        if self.failing == "find":
            raise Lost("the line was cut")
        return super().find(path, *args, **options)


class InMemory(FilesSource):
    name = "in_memory"
    config_type: type[BaseModel] = FilesSourceConfig

    def file_system(self, config: FilesSourceConfig) -> Any:
        return Store()

    def root(self, config: FilesSourceConfig) -> str:
        return "/exports"

    def translate(self, error: Exception, what: str) -> EltError | None:
        if isinstance(error, Lost):
            return TransientError(f"{what} cannot be read: {error}", guidance="try again")
        return super().translate(error, what)


class Codes(RecordFormat):
    def records(self, content: Any) -> Iterator[Json]:
        for line in content.read().decode().splitlines():
            yield {"code": line[:4], "amount": int(line[4:])}


class NoConfig(BaseModel):
    pass


class Fixed(InMemory):
    """A source with streams and a format of its own."""

    config_type: type[BaseModel] = NoConfig
    file_columns = False

    def file_streams(self, config: Any) -> Sequence[FileStreamConfig]:
        totals = {"name": "totals", "glob": "**/*.txt", "format": "jsonl"}
        return [FileStreamConfig.model_validate(totals)]

    def make_format(self, stream: FileStreamConfig) -> Any:
        return Codes()


@pytest.fixture
def store() -> Store:
    Store.store, Store.failing = {}, ""
    Store.pseudo_dirs = [""]
    return Store()


def put(store: Store, path: str, content: bytes, days: int = 0) -> None:
    store.pipe_file(f"/exports/{path}", content)
    store.store[f"/exports/{path}"].created = DAY + timedelta(days=days)


CSV: Json = {"name": "s", "glob": "**/*.csv", "format": "csv"}


def discover(source: FilesSource, own: Path, config: Json) -> Json:
    code, messages = call(source, own, "discover", config=config)
    assert code == 0, errors(messages)
    modes = {"sync_mode": "incremental", "destination_sync_mode": "append"}
    streams = messages[-1]["catalog"]["streams"]
    return {"streams": [{"stream": stream, **modes} for stream in streams]}


def read(
    source: FilesSource, own: Path, config: Json, catalog: Json, state: Any = None
) -> tuple[list[Any], Any]:
    states = {} if state is None else {"state": [state]}
    code, messages = call(source, own, "read", config=config, catalog=catalog, **states)
    assert code == 0, errors(messages)
    return records(messages), last_state(messages)


def test_new_and_changed_files_are_read_once(store: Store, tmp_path: Path) -> None:
    source, config = InMemory(), {"streams": [CSV]}
    put(store, "a.csv", b"id,v\n1,x\n")
    put(store, "deep/b.csv", b"id,v\n2,y\n", days=1)
    catalog = discover(source, tmp_path, config)
    rows, state = read(source, tmp_path, config, catalog)
    assert [(row["id"], row["_file_path"]) for row in rows] == [(1, "a.csv"), (2, "deep/b.csv")]
    assert rows[1]["_file_modified_at"].startswith("2024-05-02T00:00:00")
    put(store, "a.csv", b"id,v\n1,z\n", days=2)
    put(store, "c.csv", b"id,v\n3,w\n", days=-9)
    rows, state = read(source, tmp_path, config, catalog, state)
    assert sorted((row["id"], row["v"]) for row in rows) == [(1, "z"), (3, "w")]
    assert read(source, tmp_path, config, catalog, state)[0] == []


@pytest.mark.parametrize("failing", ["info", "find"])
def test_errors_of_the_file_system_are_translated(
    store: Store, tmp_path: Path, failing: str
) -> None:
    put(store, "a.csv", b"id\n1\n")
    config = {"streams": [CSV]}
    catalog = discover(InMemory(), tmp_path, config)
    Store.failing = failing
    code, messages = call(InMemory(), tmp_path, "read", config=config, catalog=catalog)
    (error,) = errors(messages)
    assert code != 0 and error["failure_type"] == "transient_error"
    assert "the line was cut" in error["message"]


def test_a_file_that_is_replaced_while_it_is_read_is_an_error(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, "a.csv", b"id\n1\n")
    config = {"streams": [CSV]}
    catalog = discover(InMemory(), tmp_path, config)
    opened = Store._open

    def replace_and_open(self: Store, path: str, *args: Any, **options: Any) -> Any:
        file = opened(self, path, *args, **options)
        put(store, "a.csv", b"id\n1\n2\n", days=1)
        return file

    monkeypatch.setattr(Store, "_open", replace_and_open)
    code, messages = call(InMemory(), tmp_path, "read", config=config, catalog=catalog)
    assert code != 0 and "was replaced or extended" in errors(messages)[0]["message"]


def test_links_are_followed_and_markers_of_folders_are_no_files(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fsspec/filesystem_spec#1665; an SFTP server lists links as such, without what they lead to."""
    put(store, "a.csv", b"id\n1\n")
    put(store, "link.csv", b"id\n2\n")
    config = {"streams": [{**CSV, "glob": "*"}]}
    listed = Store.find

    def find(self: Store, *args: Any, **options: Any) -> Any:
        infos = listed(self, *args, **options)
        infos["/exports/link.csv"] = {**infos["/exports/link.csv"], "type": "link", "size": 99}
        infos["/exports/"] = {"name": "/exports/", "type": "file", "size": 0}
        infos["/exports/gone.csv"] = {"name": "/exports/gone.csv", "type": "link", "size": 9}
        return infos

    monkeypatch.setattr(Store, "find", find)
    rows, _ = read(InMemory(), tmp_path, config, discover(InMemory(), tmp_path, config))
    assert [row["_file_path"] for row in rows] == ["a.csv", "link.csv"]


def test_streams_and_formats_of_a_source(store: Store, tmp_path: Path) -> None:
    put(store, "2024/a.txt", b"AB0117\nAB02-3\n")
    catalog = discover(Fixed(), tmp_path, {})
    (stream,) = catalog["streams"]
    assert stream["stream"]["json_schema"]["properties"]["amount"] == {"type": ["integer", "null"]}
    rows, state = read(Fixed(), tmp_path, {}, catalog)
    assert rows == [{"code": "AB01", "amount": 17}, {"code": "AB02", "amount": -3}]
    assert state["stream"]["stream_state"]["origin"] == "in_memory:/exports: **/*.txt"


@pytest.mark.parametrize(
    ("told", "time"),
    [
        ({"mtime": 1714521600.5}, 1714521600.5),
        ({"LastModified": DAY}, DAY),
        ({"created": datetime(2024, 5, 1)}, DAY),  # noqa: DTZ001 - as some systems tell it
        ({"date_time": (2024, 5, 1, 0, 0, 0)}, DAY),
        ({"modified": "2024-05-01T02:00:00+02:00"}, DAY),
        ({"modified": "yesterday"}, None),
        ({"mtime": None, "updated": "2024-05-01T00:00:00Z"}, DAY),
        ({"size": 3}, None),
    ],
)
def test_times_of_modification(told: Any, time: Any) -> None:
    assert _find_time(told) == time


def test_what_is_no_file_system_is_a_defect_of_the_source() -> None:
    with pytest.raises(SystemFailure, match="returns str, which is no file system"):
        wrap_file_system("/exports")


def test_the_source_of_the_page_conforms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = write_source("file-sources.md", "archive_source", tmp_path, monkeypatch)
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        for name in ("orders/1.csv", "orders/2.csv", "other.txt"):
            archive.writestr(name, f"id,at\n{name[7]},2024-01-01\n")
    config = {
        "archive": str(tmp_path / "export.zip"),
        "streams": [
            {"name": "orders", "glob": "orders/*.csv", "format": "csv", "primary_key": ["id"]}
        ],
    }
    report = Kit([sys.executable, "-m", module], config).report()
    assert report.passed, "\n".join(report.lines())
    assert fsspec.filesystem("zip", fo=config["archive"]).ls("orders", detail=False)


def test_files_without_bytes_sizes_and_times(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """apache/iceberg-python, pull request 3353; dlt-hub/dlt, pull request 4388: listings of web servers tell
    neither size nor time."""
    put(store, "a.csv", b"id\n1\n")
    put(store, "empty.csv", b"")
    described = Store.info
    listed = Store.find

    def strip(info: Any) -> Any:
        return {"name": info["name"], "type": info["type"], "size": None}

    def find(self: Store, *args: Any, **options: Any) -> Any:
        return {path: strip(info) for path, info in listed(self, *args, **options).items()}

    monkeypatch.setattr(Store, "info", lambda self, path, **more: strip(described(self, path)))
    monkeypatch.setattr(Store, "find", find)
    config = {"streams": [CSV]}
    catalog = discover(InMemory(), tmp_path, config)
    rows, state = read(InMemory(), tmp_path, config, catalog)
    assert [(row["id"], row["_file_path"]) for row in rows] == [(1, "a.csv")]
    put(store, "b.csv", b"id\n2\n")
    rows, _ = read(InMemory(), tmp_path, config, catalog, state)
    assert [row["id"] for row in rows] == [2]
