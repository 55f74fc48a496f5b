"""Catalogs of Delta tables on real servers, each behind a proxy that can lose requests and answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import count
from pathlib import Path
from typing import Any

from pyspark.sql import types as t

from elt_assets.lake.publish.glue import GlueCatalog
from elt_assets.lake.publish.hive import HiveCatalog
from elt_assets.lake.publish.registration import Catalog, EntryName, Registration
from elt_assets.lake.publish.unity import UnityCatalog
from tests.programs.unity_server import Store, make_server
from tests.support.hive_metastore import hive_metastore
from tests.support.lossy_proxy import LossyProxy, lossy_proxy
from tests.support.object_store import KEY, REGION, SECRET, s3_server

KINDS = ("glue", "hive", "unity")
TOKEN = "dapi-secret-token"
UNITY_CATALOG = "main"
_NUMBERS = count()


@dataclass
class Server:
    """A catalog's server.

    Attributes:
        direct: the catalog without the proxy.
        lossy: the catalog through the proxy.
        root: the root of the lake, whose tables it has.
        place: what names the server: an endpoint, or a URI.
    """

    kind: str
    direct: Catalog
    lossy: Catalog
    proxy: LossyProxy
    root: str
    place: str
    database: str = field(default_factory=lambda: f"shop{next(_NUMBERS)}")

    def new_database(self) -> None:
        """Continue with a database that does not exist."""
        self.database = f"shop{next(_NUMBERS)}"

    def name(self, table: str) -> EntryName:
        return EntryName(self.database, table)

    def registration(
        self, table: str, schema: t.StructType | None = None, comment: str = "", root: str = ""
    ) -> Registration:
        """Return the registration of a table of the lake, or of another one with `root`."""
        return Registration(
            self.name(table),
            f"{root or self.root}/{self.database}/{table}",
            schema or t.StructType([t.StructField("id", t.LongType())]),
            f"{self.database}/{table}",
            comment=comment,
        )


@contextmanager
def catalog_server(kind: str, folder: Path) -> Iterator[Server]:
    """Start the server of a kind of catalog, and a proxy before it."""
    with ExitStack() as opened:
        if kind == "glue":
            place = opened.enter_context(s3_server(folder / "moto.log"))
            root = "s3://lake/tables"
        elif kind == "hive":
            place = opened.enter_context(hive_metastore(folder / "metastore"))
            root = f"file://{folder}/lake"
        else:
            place = opened.enter_context(unity_server())
            root = "s3://lake/tables"
        scheme, _, address = place.partition("://")
        host, port = address.split(":")
        proxy = opened.enter_context(lossy_proxy(host, int(port)))
        lossy = open_catalog(kind, f"{scheme}://{host}:{proxy.port}")
        yield Server(kind, open_catalog(kind, place), lossy, proxy, root, place)


def open_catalog(kind: str, place: str, **options: Any) -> Catalog:
    if kind == "glue":
        keys = {"access_key_id": KEY, "secret_access_key": SECRET, "region": REGION}
        return GlueCatalog({"endpoint": place, **keys, **options})
    if kind == "hive":
        return HiveCatalog(place)
    replaces = bool(options.get("replace_entries", True))
    return UnityCatalog(place, UNITY_CATALOG, lambda: TOKEN, replace_entries=replaces)


@contextmanager
def start_answering_server(
    status: int, content: bytes, headers: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Start a server that gives each request the same answer; yield its URL."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.send_response(status)
            for name, value in {**(headers or {}), "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = answer

        def log_message(self, *_: Any) -> None:
            """Keep quiet."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@contextmanager
def unity_server(token: str | None = TOKEN) -> Iterator[str]:
    """Start `tests/programs/unity_server.py` in a thread; yield its URL."""
    with unity_store(token) as (url, _):
        yield url


@contextmanager
def unity_store(token: str | None = TOKEN) -> Iterator[tuple[str, Store]]:
    """Start a server as `unity_server` does; yield its URL, and what its catalog has."""
    store = Store(UNITY_CATALOG)
    with make_server(0, store, token) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", store
        server.shutdown()
