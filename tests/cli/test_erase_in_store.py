"""`elt erase` of a lake in a store: the same search finds a person everywhere before, and nowhere after.

The store is searched by its own client, with its older versions and unfinished uploads.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from deltalake import DeltaTable

from elt_assets.lake.session import SparkProvider
from elt_assets.storage.folders import scratch
from tests.programs.scripted import record, script, state
from tests.support.documents import code_blocks
from tests.support.elt import Elt
from tests.support.iceberg_catalogs import RestCatalog, rest_catalog
from tests.support.object_store import ObjectStore, new_bucket, s3_server
from tests.support.project import REPOSITORY, Project
from tests.support.value_search import OLD, UNFINISHED, Place, find_in_store, find_value

pytestmark = pytest.mark.usefixtures("spark")
PERSON = "zoe.erased+1@example.test"
TEXT = {"type": "string"}
SCHEMA: Any = {"id": TEXT, "name": TEXT, "age": {"type": "integer"}}
LIVE: Any = {
    "sync_mode": "incremental",
    "destination_sync_mode": "append_dedup",
    "primary_key": [["id"]],
    "history": True,
    "partition_by": ["name"],
}
KEY = "scripted/things"
TABLES = ("things", "things_history", "things_dead_letter")
WHERE = ("--where", f"id = '{PERSON}' or name = '{PERSON}'", "--yes")


class StoredProject:
    """A project whose lake, in `root`, and staging are in a store."""

    def __init__(self, project: Project, elt: Elt, store: ObjectStore, root: str):
        self.project, self.elt, self.store, self.root = project, elt, store, root
        self.prefix = urlsplit(root).path.strip("/")

    def send(self, *lines: Any, cursor: Any, **stream: Any) -> None:
        script(self.project, [*lines, state(cursor)], schema=SCHEMA, **{**LIVE, **stream})
        self.elt("sync", "scripted")

    def send_person(self) -> None:
        self.send(record(id=PERSON, name=PERSON), record(id="ann", name="ann"), cursor=1)
        self.send(record(id=PERSON, name="zoe", age=2), record(name=PERSON), cursor=2)

    def put(self, name: str, content: str | bytes) -> None:
        body = content.encode() if isinstance(content, str) else content
        self.store.client.put_object(Bucket=self.store.bucket, Key=name, Body=body)

    def table(self, name: str) -> DeltaTable:
        return DeltaTable(f"{self.root}/scripted/{name}", storage_options=self.store.options)

    def ids(self) -> list[Any]:
        return sorted(self.table("things").to_pyarrow_table()["id"].to_pylist())

    def find(self) -> list[Place]:
        """Return all places in the bucket and in the home that have the person."""
        return [*find_in_store(PERSON, self.store), *find_value(PERSON, self.project.home)]

    def list_kinds(self) -> set[str]:
        """Return the kinds of places that have the person."""
        return {self._kind(place) for place in self.find()}

    def _kind(self, place: Place) -> str:
        path = str(place.path)
        if path.startswith(f"{self.project.home}/"):
            return f"home {path.removeprefix(f'{self.project.home}/').split('/')[0]}"
        if place.part == UNFINISHED or place.part.startswith(OLD):
            return place.part.partition(":")[0]
        if not path.startswith(f"{self.prefix}/"):
            return "staging"
        _, table, folder, *_ = path.removeprefix(f"{self.prefix}/").split("/")
        suffix = place.path.suffix if folder == "_delta_log" else ""
        page = " dictionary" if "dictionary page" in place.part and not suffix else ""
        return f"{table} {folder}{suffix}{page}"


@pytest.fixture
def open_store(
    own: Project, elt: Elt, spark_provider: SparkProvider, monkeypatch: pytest.MonkeyPatch
) -> Any:
    """Returns a function that moves the project's lake and staging into a store."""

    def move(store: ObjectStore, root: str, staging: str) -> StoredProject:
        workers = spark_provider.get().sparkContext.environment
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
            monkeypatch.setitem(workers, name, value)
        monkeypatch.setenv("ELT_LAKE", root)
        monkeypatch.setenv("ELT_STAGING", staging)
        return StoredProject(own, elt, store, root)

    return move


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalog]:
    with rest_catalog(tmp_path_factory.mktemp("rest")) as catalog:
        yield catalog


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with s3_server(tmp_path_factory.mktemp("s3") / "log") as started:
        yield started


@pytest.fixture
def moto(open_store: Any, endpoint: str) -> StoredProject:
    store = new_bucket(endpoint)
    stored: StoredProject = open_store(store, store.uri, f"s3://{store.bucket}/staging")
    return stored


def plant(stored: StoredProject) -> None:
    """Put copies where killed runs leave some."""
    root = f"{stored.prefix}/scripted"
    for name in TABLES:
        stored.table(name).create_checkpoint()
        orphan = next(iter(stored.table(name).file_uris())).partition(f"{stored.store.bucket}/")[2]
        stored.store.client.copy_object(
            Bucket=stored.store.bucket,
            Key=f"{root}/{name}/data/left/orphan.parquet",
            CopySource=f"{stored.store.bucket}/{orphan}",
        )
    stored.put(f"{root}/things/_elt/left/keys.json", json.dumps({"state": PERSON}))
    stored.put(f"{root}/things/data/left/archive.gz", gzip.compress(PERSON.encode()))
    with scratch(stored.project.home / "staging", "sync") as folder:
        copy = shutil.copytree(folder, stored.project.root / "copy")
    copy.rename(folder)  # as after a kill: no process has its lock
    (folder / "things.rows").write_text(PERSON)
    staging = urlsplit(os.environ["ELT_STAGING"]).path.strip("/")
    stored.put(f"{staging}/{folder.name}/0/1.jsonl", PERSON)


@pytest.mark.external
def test_a_person_is_found_nowhere_in_a_store_with_an_iceberg_catalog(
    open_store: Any, rest: RestCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    iceberg = {"catalog": rest.properties, "dead_letters": True}
    monkeypatch.setenv("ELT_ICEBERG", json.dumps(iceberg))
    stored: StoredProject = open_store(rest.store, rest.lake, f"s3://{rest.store.bucket}/a/s/_s")
    stored.send_person()
    plant(stored)
    before = stored.list_kinds()
    assert before >= {
        *(f"{table} data" for table in TABLES),
        *(f"{table} data dictionary" for table in TABLES),
        *(f"{table} _delta_log.json" for table in TABLES),
        *(f"{table} _delta_log.parquet" for table in TABLES),
        *(f"{table} _iceberg" for table in TABLES),
        "things _elt",
        "staging",
        "home staging",
    }, before
    answer = stored.elt.json("erase", KEY, *WHERE)
    assert answer["warnings"] == []
    assert (answer["rows"], answer["history"], answer["rejected"]) == (1, 1, 1)
    assert stored.find() == []
    stored.send(record(id="bob", name="bob"), cursor=3)
    assert stored.ids() == ["ann", "bob"]


def put_documents(project: Project, *names: str) -> None:
    """Connect a folder with a document of each name, which has the name in it."""
    folder = project.root / "data"
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text(f"a letter of {name}")
    stream = {"name": "docs", "glob": "**", "format": "documents", "documents": {}}
    config = {"location": str(folder), "streams": [stream]}
    modes = {"sync_mode": "incremental", "destination_sync_mode": "append_dedup"}
    source = {"connector": "files", "config": config}
    project.connection("archive", source=source, streams=[{"name": "docs", **modes}])
    project.discover("archive")


def test_documents_go_and_what_the_bucket_keeps_is_named_and_can_be_removed(
    moto: StoredProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bucket with versioning keeps all that is removed; the lines in the document remove it."""
    client, bucket = moto.store.client, moto.store.bucket
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    put_documents(moto.project, f"{PERSON}.txt", "ann.txt")
    moto.elt("sync", "archive")
    killed = {"Bucket": bucket, "Key": f"{moto.prefix}/archive/docs/data/left/part.parquet"}
    upload = client.create_multipart_upload(**killed)["UploadId"]
    client.upload_part(**killed, UploadId=upload, PartNumber=1, Body=PERSON.encode())
    erase = ("erase", "archive/docs", "--where", f"path = '{PERSON}.txt'", "--yes")
    assert moto.list_kinds() >= {"docs _files", "docs data", "docs _delta_log.json", UNFINISHED}

    other = f"staging/sync-another-{'0' * 16}/0/1.jsonl"
    moto.put(other, "{}")
    answer = moto.elt.json(*erase)
    assert (answer["rows"], answer["documents"]) == (1, 1)
    assert moto.list_kinds() == {OLD}
    warning, left = answer["warnings"]
    assert f"1 folders in s3://{bucket}/staging are of syncs of other machines" in left
    client.delete_object(Bucket=bucket, Key=other)
    named = rf"keeps older versions of .* below {moto.root}/archive/docs \(\d+\), .*staging \(\d+\)"
    assert re.search(named, warning)
    assert "docs/data-protection.md#what-a-store-keeps" in warning

    (lines,) = code_blocks((REPOSITORY / "docs/data-protection.md").read_text(), "python")
    for name, value in moto.store.environment.items():
        monkeypatch.setenv(name, value)
    present = sorted(moto.store.objects())
    for folder in re.findall(rf"s3://{bucket}/(\S+) \(", warning):
        exec(lines.replace("BUCKET", bucket).replace("lake/shop/users/", f"{folder}/"))
    assert (moto.find(), sorted(moto.store.objects())) == ([], present)
    monkeypatch.setitem(sys.modules, "boto3", None)  # as without the extra
    (warning,) = moto.elt.json(*erase)["warnings"]
    assert "older versions of removed objects, which the bucket keeps, and parts of" in warning
    assert "boto3, which finds them, is not installed" in warning
