"""An S3 server of the tests on the loopback interface, and a proxy that ignores a condition."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import boto3
from deltalake import DeltaTable
from pyarrow.fs import FileSelector, FileType, S3FileSystem

REGION = "eu-central-1"
KEY, SECRET = "AKIATESTKEY", "secret-of-the-object-store"


@dataclass(frozen=True)
class ObjectStore:
    """A bucket of an S3 server. `log`: the log of the server."""

    endpoint: str
    bucket: str
    log: Path | None = None

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket}/lake"

    @property
    def options(self) -> dict[str, str]:
        """The options by the names that delta-rs expects."""
        return {
            "aws_access_key_id": KEY,
            "aws_secret_access_key": SECRET,
            **{name.lower(): value for name, value in self.place.items()},
        }

    @property
    def place(self) -> dict[str, str]:
        """The environment variables that name the server."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": REGION,
            "AWS_ALLOW_HTTP": "true",
        }

    @property
    def environment(self) -> dict[str, str]:
        return {**self.place, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}

    def requests(self) -> list[str]:
        """The requests that the server has answered: the method and the target of each."""
        assert self.log is not None
        found = re.findall(r"([A-Z]+ /\S+) HTTP/1\.1", self.log.read_text())
        return [unquote(each) for each in found if f"/{self.bucket}" in each]

    @property
    def system(self) -> S3FileSystem:
        return S3FileSystem(
            access_key=KEY,
            secret_key=SECRET,
            region=REGION,
            endpoint_override=self.endpoint.partition("//")[2],
            scheme="http",
            allow_bucket_creation=True,
        )

    @property
    def client(self) -> Any:
        """boto3's client of the store, which shares no code with the lake."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
        )

    def objects(self) -> list[str]:
        """The keys of all objects, as the server lists them."""
        found = self.system.get_file_info(FileSelector(self.bucket, recursive=True))
        return sorted(each.path for each in found if each.type == FileType.File)


@contextmanager
def s3_server(log: Path) -> Iterator[str]:
    """Start an S3 server, with its state in its memory; yield its endpoint."""
    with s3_process(log) as (endpoint, _):
        yield endpoint


@contextmanager
def s3_process(log: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Start an S3 server as `s3_server` does; yield its endpoint and its process."""
    port = _free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with log.open("w") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=sink)
    try:
        _wait(port, process)
        yield f"http://127.0.0.1:{port}", process
    finally:
        process.terminate()
        process.wait(timeout=30)


def new_bucket(endpoint: str, log: Path | None = None) -> ObjectStore:
    """`log`: the log of the server, for `ObjectStore.requests`."""
    store = ObjectStore(endpoint, f"bucket-{uuid.uuid4().hex[:12]}", log)
    store.system.create_dir(store.bucket)
    return store


def missing_files(store: ObjectStore, folder: str) -> list[str]:
    """The files that the tables in a folder of the bucket name, and that the store does not have."""
    present = store.objects()
    logs = {name.partition("/_delta_log/")[0] for name in present if "/_delta_log/" in name}
    named = [
        uri.partition("://")[2]
        for table in logs
        if table.startswith(f"{store.bucket}/{folder}/")
        for uri in DeltaTable(f"s3://{table}", storage_options=store.options).file_uris()
    ]
    return [name for name in named if name not in present]


def copy_folder(store: ObjectStore, source: str, target: str) -> None:
    """Copy a folder of the bucket."""
    for name in store.objects():
        if name.startswith(f"{store.bucket}/{source}/"):
            copied = name.replace(source, target, 1)
            store.system.copy_file(name, copied)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, "the server has ended"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/moto-api/data.json", timeout=10):
                return
        except OSError:  # it does not listen yet
            time.sleep(0.1)
    raise TimeoutError("waited for the S3 server")
