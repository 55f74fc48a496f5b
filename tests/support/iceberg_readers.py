"""Readers of Iceberg tables that nobody here wrote: Polars, and DuckDB's extension.

Each gets a table by its metadata file, as a catalog names it, and returns all its rows.
"""

from __future__ import annotations

import json
import subprocess
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
from pyiceberg.table import Table

from tests.support.iceberg_catalogs import WAREHOUSE, RestCatalog, s3_properties
from tests.support.object_store import KEY, SECRET
from tests.support.project import REPOSITORY, environment_with

DUCKDB = (
    "duckdb==1.5.5",
    *(f"duckdb-extension-{name}==1.5.5" for name in ("avro", "httpfs", "iceberg")),
    *("pyarrow", "pytz"),
)
"""DuckDB loads extensions of its own version only, and those on PyPI are of this one."""
_PROGRAM = REPOSITORY / "tests" / "programs" / "duckdb_iceberg.py"
_SETTINGS = {
    "s3.endpoint": "ENDPOINT",
    "s3.access-key-id": "KEY_ID",
    "s3.secret-access-key": "SECRET",
    "s3.region": "REGION",
}
"""The names that DuckDB has for pyiceberg's properties of a store."""


def read_by_polars(table: Table) -> pa.Table:
    options = {
        name: str(table.io.properties[name]) for name in _SETTINGS if name in table.io.properties
    }
    with warnings.catch_warnings():
        # It says that another planner, which is not installed, would be faster.
        warnings.simplefilter("ignore")
        rows = pl.scan_iceberg(table.metadata_location, storage_options=options or None).collect()
    return rows.to_arrow()


@dataclass
class DuckDb:
    """A running process of DuckDB."""

    process: subprocess.Popen[str]
    folder: Path
    _numbers: Iterator[int] = field(default_factory=count)

    def read(self, table: Table) -> pa.Table:
        """Return the rows of a table."""
        place = table.metadata_location.removeprefix("file://").replace("'", "''")
        return self.query(f"FROM iceberg_scan('{place}')", *self._secret(table.io.properties))

    def read_by_name(self, catalog: RestCatalog, namespace: str, name: str) -> pa.Table:
        """Return the rows of a table of a REST catalog, by its name."""
        options = [
            f"ENDPOINT '{catalog.url}'",
            f"CLIENT_ID '{KEY}'",
            f"CLIENT_SECRET '{SECRET}'",
            f"OAUTH2_SERVER_URI '{catalog.token_url}'",
            "ACCESS_DELEGATION_MODE 'none'",
        ]
        attach = f"ATTACH '{WAREHOUSE}' AS {{}} (TYPE iceberg, {', '.join(options)})"
        own = f"lake_{next(self._numbers)}"
        secret = self._secret(s3_properties(catalog.store))
        return self.query(f"FROM {own}.{namespace}.{name}", *secret, attach.format(own))

    def query(self, query: str, *before: str) -> pa.Table:
        """Return the rows of a query; `before`: statements that are executed first."""
        file = self.folder / f"{next(self._numbers)}.arrows"
        request = {"query": query, "before": list(before), "file": str(file)}
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{json.dumps(request)}\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert "error" not in answer, answer["error"]
        with pa.OSFile(str(file)) as source:
            rows = pa.ipc.open_stream(source).read_all()
        file.unlink()
        return rows

    def _secret(self, properties: Mapping[str, Any]) -> list[str]:
        if "s3.endpoint" not in properties:
            return []
        values = {name: str(properties[key]) for key, name in _SETTINGS.items()}
        values["ENDPOINT"] = values["ENDPOINT"].partition("//")[2]
        parts = [f"{name} '{value}'" for name, value in values.items()]
        parts += ["TYPE s3", "URL_STYLE 'path'", "USE_SSL false"]
        return [f"CREATE OR REPLACE SECRET store ({', '.join(parts)})"]


@contextmanager
def duckdb_process(packages: Path, folder: Path) -> Iterator[DuckDb]:
    """Start DuckDB in its environment, which is made once in `packages`."""
    python = environment_with(packages, *DUCKDB)
    process = subprocess.Popen(
        [str(python), str(_PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield DuckDb(process, folder)
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.wait(timeout=30)
        process.stdout.close()
