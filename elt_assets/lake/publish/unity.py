"""Entries of Delta tables in Unity Catalog, the open-source server or Databricks, by its REST API.

`entries` opens it for `type = "unity"`.

- An entry is this project's if it is an external Delta table at the place of the table: Databricks allows no
  second entry for a place, and replaces the properties of an entry, so a mark among them would be lost.
- The API cannot change an entry. Where other columns or another comment should be shown, the entry is made
  again if `replace_entries` is set, and loses the rights and tags that it was given; else it is an error that
  says so. Engines read the columns from the table's log in any case.

Spec: Unity Catalog's OpenAPI, Tables and Schemas (`api/all.yaml`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from pyspark.sql import types as t

from elt_assets.errors import ConfigError, TransientError
from elt_assets.lake.publish.hive_form import comment_of
from elt_assets.lake.publish.registration import Entry, EntryExists, EntryName, Registration
from elt_assets.lake.publish.unity_client import KIND, UnityClient

_TYPE_NAMES: Mapping[type[t.DataType], str] = {
    t.BooleanType: "BOOLEAN",
    t.ByteType: "BYTE",
    t.ShortType: "SHORT",
    t.IntegerType: "INT",
    t.LongType: "LONG",
    t.FloatType: "FLOAT",
    t.DoubleType: "DOUBLE",
    t.DateType: "DATE",
    t.TimestampType: "TIMESTAMP",
    t.TimestampNTZType: "TIMESTAMP_NTZ",
    t.StringType: "STRING",
    t.BinaryType: "BINARY",
    t.DecimalType: "DECIMAL",
    t.ArrayType: "ARRAY",
    t.StructType: "STRUCT",
    t.MapType: "MAP",
    t.VariantType: "VARIANT",
}


class UnityCatalog:
    """One catalog of a server.

    Args:
        url: the server, or the workspace of Databricks.
        catalog: the catalog's name.
        read_token: returns the token for a request; None if the server needs none.
        replace_entries: whether an entry is made again to change it.

    Raises:
        ConfigError: the URL is none, or would send the token without encryption.
    """

    kind = KIND

    def __init__(
        self,
        url: str,
        catalog: str,
        read_token: Callable[[], str | None],
        *,
        replace_entries: bool = False,
    ):
        self._send = UnityClient(url, read_token).send
        self._catalog = catalog
        self._replace_entries = replace_entries

    def find(self, name: EntryName) -> Entry | None:
        table = self._send("GET", f"/tables/{self._path(name)}", f"the entry {name}")
        if table is None:
            return None
        is_delta = table.get("table_type") == "EXTERNAL" and (
            table.get("data_source_format") == "DELTA"
        )
        columns = sorted(table.get("columns") or (), key=lambda column: column.get("position") or 0)
        return Entry(
            name,
            str(table.get("storage_location") or ""),
            table.get("table_type") == "EXTERNAL",
            is_delta,
            {"columns": tuple(map(_fact_of, columns)), "comment": table.get("comment") or ""},
        )

    def facts_of(self, registration: Registration) -> Mapping[str, Any]:
        columns = tuple(map(_fact_of, _columns_of(registration)))
        return {"columns": columns, "comment": registration.comment}

    def create(self, registration: Registration) -> None:
        name, what = registration.name, f"the entry {registration.name}"
        table = {
            "name": name.table,
            "catalog_name": self._catalog,
            "schema_name": name.database,
            "table_type": "EXTERNAL",
            "data_source_format": "DELTA",
            "columns": _columns_of(registration),
            "storage_location": registration.location,
            **({"comment": registration.comment} if registration.comment else {}),
        }
        if self._send("POST", "/tables", what, table) is None:
            self._create_schema(name)
            if self._send("POST", "/tables", what, table) is None:
                raise TransientError(f"the schema of {what} was removed in the meantime")

    def update(self, registration: Registration, entry: Entry) -> None:
        if not self._replace_entries:
            raise ConfigError(
                f"the entry {self._catalog}.{entry.name} in {self.kind} shows former columns or a former "
                "comment, and its API cannot change an entry; the table itself is not affected",
                guidance=f"on Databricks, run `MSCK REPAIR TABLE {self._catalog}.{entry.name} SYNC "
                "METADATA`; or set `replace_entries = true` in [tool.elt.catalog]: entries are then made "
                "again, and lose the rights and tags that they were given",
            )
        self.remove(entry)
        self.create(registration)

    def remove(self, entry: Entry) -> None:
        self._send("DELETE", f"/tables/{self._path(entry.name)}", f"the entry {entry.name}")

    def _create_schema(self, name: EntryName) -> None:
        """Create the schema, without a place of its own: a table has one."""
        schema = {"name": name.database, "catalog_name": self._catalog}
        what = f"the schema {self._catalog}.{name.database}"
        try:
            answer = self._send("POST", "/schemas", what, schema)
        except EntryExists:
            return
        if answer is None:
            raise ConfigError(
                f"{self.kind} has no catalog {self._catalog!r}, or does not show it to the token's owner",
                guidance="create it, or correct `catalog` in [tool.elt.catalog]",
            )

    def _path(self, name: EntryName) -> str:
        return quote(f"{self._catalog}.{name}", safe="")


def _columns_of(registration: Registration) -> list[dict[str, Any]]:
    """Return the columns as the API has them."""
    columns = []
    for position, column in enumerate(registration.schema):
        kind = column.dataType
        info = {
            "name": column.name,
            "type_text": kind.simpleString(),
            "type_json": json.dumps(column.jsonValue()),
            "type_name": _TYPE_NAMES.get(type(kind), "USER_DEFINED_TYPE"),
            "position": position,
            "nullable": column.nullable,
        }
        if isinstance(kind, t.DecimalType):
            info |= {"type_precision": kind.precision, "type_scale": kind.scale}
        if comment := comment_of(column):
            info["comment"] = comment
        if column.name in registration.partition_by:
            info["partition_index"] = registration.partition_by.index(column.name)
        columns.append(info)
    return columns


def _fact_of(column: Mapping[str, Any]) -> tuple[str, str, str, bool]:
    """Return what an entry shows of a column. Servers keep texts of types in lower case."""
    return (
        str(column.get("name")),
        str(column.get("type_text")).lower(),
        str(column.get("comment") or ""),
        bool(column.get("nullable", True)),
    )
