"""A server with the requests and answers of Unity Catalog's OpenAPI that register tables.

It follows the published `api/all.yaml` and the checks of the open-source server: names, `type_json`, error
codes and statuses. It is no Unity Catalog: no such server could be had for these tests.

`python unity_server.py PORT CATALOG [TOKEN]`; without TOKEN, requests need none. The port is printed.
"""

from __future__ import annotations

import json
import re
import sys
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

API = "/api/2.1/unity-catalog"
NAME = re.compile(r"[a-zA-Z0-9_@-]{1,255}")
TYPES = re.compile(
    "BOOLEAN|BYTE|SHORT|INT|LONG|FLOAT|DOUBLE|DATE|TIMESTAMP|TIMESTAMP_NTZ|STRING|BINARY|DECIMAL|INTERVAL"
    "|ARRAY|STRUCT|MAP|VARIANT|CHAR|NULL|USER_DEFINED_TYPE|TABLE_TYPE"
)
FORMATS = frozenset(("DELTA", "CSV", "JSON", "AVRO", "PARQUET", "ORC", "TEXT"))
PRIMITIVES = re.compile(
    r"boolean|byte|short|integer|long|float|double|date|timestamp|timestamp_ntz|string|binary|variant"
    r"|decimal\(\d+,\s*\d+\)"
)


class Refusal(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, code: str, message: str):
        super().__init__(message)
        self.status, self.code = status, code


class Store:
    """The schemas and tables of one catalog."""

    def __init__(self, catalog: str):
        self.catalog = catalog
        self.schemas: dict[str, dict[str, Any]] = {}
        self.tables: dict[tuple[str, str], dict[str, Any]] = {}

    def create_schema(self, body: dict[str, Any]) -> dict[str, Any]:
        self._check_catalog(body["catalog_name"])
        name = check_name(body["name"])
        if name in self.schemas:
            raise Refusal(400, "SCHEMA_ALREADY_EXISTS", f"Schema already exists: {name}")
        self.schemas[name] = {
            **body,
            "full_name": f"{self.catalog}.{name}",
            "schema_id": str(uuid.uuid4()),
        }
        return self.schemas[name]

    def create_table(self, body: dict[str, Any]) -> dict[str, Any]:
        name = check_name(body["name"])
        if body["table_type"] not in ("MANAGED", "EXTERNAL"):
            raise Refusal(400, "INVALID_ARGUMENT", f"Unrecognized table type {body['table_type']}")
        if body["data_source_format"] not in FORMATS:
            raise Refusal(400, "INVALID_ARGUMENT", "Unknown format")
        columns = [check_column(column) for column in body["columns"]]
        self._check_catalog(body["catalog_name"])
        key = (body["schema_name"], name)
        if key[0] not in self.schemas:
            raise Refusal(404, "SCHEMA_NOT_FOUND", f"Schema not found: {key[0]}")
        if key in self.tables:
            raise Refusal(400, "TABLE_ALREADY_EXISTS", f"Table already exists: {'.'.join(key)}")
        if body["table_type"] == "EXTERNAL" and "://" not in str(body.get("storage_location")):
            raise Refusal(400, "INVALID_ARGUMENT", "Storage location is no URL")
        now = int(time.time() * 1000)
        self.tables[key] = {
            **body,
            "columns": columns,
            "storage_location": str(body.get("storage_location")).rstrip("/"),
            "created_at": now,
            "updated_at": now,
            "table_id": str(uuid.uuid4()),
        }
        return self.tables[key]

    def table_key(self, full_name: str) -> tuple[str, str]:
        catalog, schema, table = [*full_name.split("."), "", ""][:3]
        self._check_catalog(catalog)
        if schema not in self.schemas:
            raise Refusal(404, "SCHEMA_NOT_FOUND", f"Schema not found: {schema}")
        if (schema, table) not in self.tables:
            raise Refusal(404, "TABLE_NOT_FOUND", f"Table not found: {full_name}")
        return schema, table

    def _check_catalog(self, name: str) -> None:
        if name != self.catalog:
            raise Refusal(404, "CATALOG_NOT_FOUND", f"Catalog not found: {name}")


def check_name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise Refusal(
            400,
            "INVALID_ARGUMENT",
            "Name cannot contain a period, space, forward-slash, or control characters",
        )
    return name


def check_column(column: dict[str, Any]) -> dict[str, Any]:
    try:
        field = json.loads(column["type_json"])
        assert TYPES.fullmatch(column["type_name"]), "type_name"
        assert field["name"] == column["name"], "field name does not match column name"
        assert field["nullable"] == column["nullable"], "field nullable does not match"
        assert isinstance(field["metadata"], dict), "metadata is required"
        check_type(field["type"])
    except (AssertionError, KeyError, TypeError, ValueError) as error:
        raise Refusal(
            400, "INVALID_ARGUMENT", f"Invalid type_json for column {column.get('name')}: {error}"
        ) from None
    return {**column, "type_text": column["type_text"].lower()}


def check_type(kind: Any) -> None:
    if isinstance(kind, str):
        assert PRIMITIVES.fullmatch(kind), f"type: unknown primitive {kind}"
    elif kind["type"] == "array":
        assert isinstance(kind["containsNull"], bool)
        check_type(kind["elementType"])
    elif kind["type"] == "map":
        check_type(kind["keyType"])
        check_type(kind["valueType"])
    else:
        assert kind["type"] == "struct"
        for field in kind["fields"]:
            assert isinstance(field["nullable"], bool) and isinstance(field["metadata"], dict)
            check_type(field["type"])


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    store: Store
    token: str | None = None

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def do_DELETE(self) -> None:
        self._answer(self._delete)

    def log_message(self, *_: Any) -> None:
        """Keep quiet."""

    def _get(self, kind: str, name: str) -> dict[str, Any]:
        if kind == "tables":
            return self.store.tables[self.store.table_key(name)]
        if kind == "schemas" and name.partition(".")[2] in self.store.schemas:
            return self.store.schemas[name.partition(".")[2]]
        raise Refusal(404, "NOT_FOUND", f"Not found: {name}")

    def _post(self, kind: str, _name: str) -> dict[str, Any]:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        return self.store.create_table(body) if kind == "tables" else self.store.create_schema(body)

    def _delete(self, kind: str, name: str) -> dict[str, Any]:
        assert kind == "tables"
        del self.store.tables[self.store.table_key(name)]
        return {}

    def _check_token(self) -> None:
        expected = f"Bearer {self.token}"
        if self.token is not None and self.headers.get("Authorization") != expected:
            raise Refusal(401, "UNAUTHENTICATED", "The token is missing, wrong or expired")

    def _answer(self, action: Any) -> None:
        status, reply = 200, {}
        try:
            if not self.path.startswith(f"{API}/"):
                self._send(404, b"<html>no such page</html>", "text/html")
                return
            self._check_token()
            kind, _, name = unquote(self.path.removeprefix(f"{API}/")).partition("/")
            reply = action(kind, name)
        except Refusal as refusal:
            status = refusal.status
            reply = {
                "error_code": refusal.code,
                "message": str(refusal),
                "details": [
                    {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": refusal.code}
                ],
            }
        self._send(status, json.dumps(reply).encode(), "application/json")

    def _send(self, status: int, content: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def make_server(port: int, store: Store, token: str | None = None) -> ThreadingHTTPServer:
    """Return a server of one catalog."""
    handler = type("OneCatalog", (Handler,), {"store": store, "token": token})
    return ThreadingHTTPServer(("127.0.0.1", port), handler)


if __name__ == "__main__":
    server = make_server(int(sys.argv[1]), Store(sys.argv[2]), *sys.argv[3:4])
    print(server.server_port, flush=True)
    server.serve_forever()
