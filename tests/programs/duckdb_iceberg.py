"""DuckDB with its extensions, as a program that reads Iceberg tables for tests.

It runs in an environment of its own: extensions from PyPI load in their own version of DuckDB only, which is
older than the pinned one. `tests.support.iceberg_readers` starts it. Each line on stdin is a request, whose
answer is a line on stdout: the path of a file with the rows in Arrow's stream format, or an error.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import duckdb
import pyarrow as pa

EXTENSIONS = ("avro", "httpfs", "iceberg")


def connect() -> duckdb.DuckDBPyConnection:
    found = duckdb.connect(
        config={"autoinstall_known_extensions": False, "autoload_known_extensions": False}
    )
    for name in EXTENSIONS:
        module = importlib.import_module(f"duckdb_extension_{name}")
        (file,) = Path(module.__path__[0]).rglob("*.duckdb_extension")
        found.execute(f"LOAD '{file}'")
    found.execute("SET TimeZone = 'UTC'")
    return found


def answer(connection: duckdb.DuckDBPyConnection, request: dict[str, str]) -> dict[str, str]:
    try:
        for statement in request["before"]:
            connection.execute(statement)
        rows = connection.sql(request["query"]).to_arrow_table()
    except duckdb.Error as error:
        return {"error": f"{type(error).__name__}: {error}"}
    with pa.OSFile(request["file"], "wb") as sink, pa.ipc.new_stream(sink, rows.schema) as out:
        out.write_table(rows)
    return {}


def main() -> None:
    connection = connect()
    for line in sys.stdin:
        print(json.dumps(answer(connection, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
