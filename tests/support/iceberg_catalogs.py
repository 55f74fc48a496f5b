"""Catalogs of Iceberg tables for tests: SQL on SQLite, Glue by moto, and a REST catalog over S3.

The REST catalog and its S3 server are one process of seaweedfs. It writes the tables' metadata files itself,
below `metadata/` of the table, and accepts only tables in the bucket of its warehouse. There, the S3 server
answers only requests for files that are in two folders, and then in `data`, `metadata` or a folder whose name
begins with `_`: so the lake is in such a folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.e2e.daemons import free_ports, wait
from tests.support.object_store import KEY, REGION, SECRET, ObjectStore
from tests.support.project import BIN

WAREHOUSE = "warehouse"
"""The bucket of the REST catalog."""
_PORTS = (
    *("master.port", "master.port.grpc", "volume.port", "volume.port.grpc"),
    *("filer.port", "filer.port.grpc", "s3.port", "s3.port.grpc", "s3.port.iceberg"),
)
_OPTIONS = ("-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3", "-s3.port.lance=0")
_SHELL_SECONDS = 30


def sql_catalog(folder: Path) -> dict[str, str]:
    """Return pyiceberg's properties of a catalog in a SQLite file of a folder."""
    return {
        "type": "sql",
        "uri": f"sqlite:///{folder / 'catalog.db'}",
        "warehouse": folder.as_uri(),
    }


def glue_catalog(store: ObjectStore) -> dict[str, str]:
    """Return pyiceberg's properties of the Glue catalog of moto's server, for tables in its bucket."""
    return {
        "type": "glue",
        "glue.endpoint": store.endpoint,
        "glue.region": REGION,
        "glue.access-key-id": KEY,
        "glue.secret-access-key": SECRET,
        **s3_properties(store),
    }


def s3_properties(store: ObjectStore) -> dict[str, str]:
    """Return pyiceberg's properties of a store of files."""
    return {
        "s3.endpoint": store.endpoint,
        "s3.access-key-id": KEY,
        "s3.secret-access-key": SECRET,
        "s3.region": REGION,
    }


@dataclass(frozen=True)
class RestCatalog:
    """A running server: its Iceberg catalog at `url`, and the bucket for its tables."""

    url: str
    store: ObjectStore

    @property
    def lake(self) -> str:
        """The root of the lake."""
        return f"s3://{WAREHOUSE}/a/lake/_tables"

    @property
    def token_url(self) -> str:
        return f"{self.url}/v1/oauth/tokens"

    @property
    def properties(self) -> dict[str, str]:
        """The properties of the catalog by pyiceberg's names."""
        return {
            "type": "rest",
            "uri": self.url,
            "warehouse": f"s3://{WAREHOUSE}/",
            "credential": f"{KEY}:{SECRET}",
            "oauth2-server-uri": self.token_url,
            **s3_properties(self.store),
        }

    def behind(self, proxy: str) -> RestCatalog:
        """Return the same catalog as a proxy of it shows it."""
        return replace(self, url=proxy)


@contextmanager
def rest_catalog(folder: Path) -> Iterator[RestCatalog]:
    """Start a REST catalog with an S3 server, in a folder of its own; four seconds."""
    ports = dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True))
    users = folder / "s3.json"
    users.write_text(json.dumps({"identities": [_identity()]}))
    options = [f"-{name}={port}" for name, port in ports.items()]
    command = [str(BIN / "weed"), "-logtostderr=true", "server", f"-dir={folder}", *_OPTIONS]
    command += [*options, f"-s3.config={users}", "-volume.max=20"]
    environment = {**os.environ, "HOME": str(folder)}
    url = f"http://127.0.0.1:{ports['s3.port.iceberg']}"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        wait(lambda: _answers(process, f"{url}/v1/config"), f"the catalog, see {folder / 'log'}")
        _create_warehouse(ports, environment)
        endpoint = f"http://127.0.0.1:{ports['s3.port']}"
        yield RestCatalog(url, ObjectStore(endpoint, WAREHOUSE))
    finally:
        process.kill()  # on SIGTERM it waits for ten seconds
        process.wait(timeout=60)


def _identity() -> Mapping[str, object]:
    return {
        "name": "admin",
        "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
        "actions": ["Admin", "Read", "List", "Tagging", "Write"],
    }


def _answers(process: subprocess.Popen[bytes], url: str) -> bool:
    assert process.poll() is None, "the server has ended"
    with urllib.request.urlopen(url, timeout=5) as answer:
        return bool(answer.status == 200)


def _create_warehouse(ports: Mapping[str, int], environment: Mapping[str, str]) -> None:
    """Create the bucket; the parts of the server find each other some time after they listen."""
    places = [
        f"-{name}=127.0.0.1:{ports[f'{name}.port']}.{ports[f'{name}.port.grpc']}"
        for name in ("master", "filer")
    ]
    create = f"s3tables.bucket -create -name {WAREHOUSE} -account 000000000000\nexit\n"
    deadline = time.monotonic() + _SHELL_SECONDS
    while time.monotonic() < deadline:
        done = subprocess.run(
            [str(BIN / "weed"), "shell", *places],
            input=create,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=_SHELL_SECONDS,
        )
        if f"bucket/{WAREHOUSE}" in done.stdout:
            return
        time.sleep(0.2)
    raise TimeoutError(f"the bucket was not created: {done.stdout}{done.stderr}")
