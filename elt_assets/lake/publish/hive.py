"""Entries of Delta tables in a Hive Metastore, for Spark, Trino, Presto and Hive's clients.

`entries` opens it for `type = "hive"`. The client is that of the extra `hive`.

- A connection serves one request: after an answer that came too late, the next answer on a connection would
  be that of another request.
- The client's errors cannot leave a context manager: they refuse the traceback that it sets. So they become
  errors of this project where they are caught, and none is raised from one.
- The metastore compares old and new types of the columns by their position, and refuses a column that was
  put between others. So a list that it refuses is emptied first. A kill in between leaves an entry without
  the list, which the next sync adds; engines read the columns from the table's log.
- It stores texts in columns of limited length, and does not answer if one is longer. So they are cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from elt_assets.errors import ConfigError, EltError, SystemFailure, TransientError
from elt_assets.lake.publish import hive_form
from elt_assets.lake.publish.hive_form import HiveColumn, Limits
from elt_assets.lake.publish.registration import (
    CONNECT_SECONDS,
    MARK,
    REQUEST_SECONDS,
    Entry,
    EntryExists,
    EntryName,
    Registration,
    unreachable,
)

_LIMITS = Limits(type=4000, comment=255)
_COMMENT = "comment"
"""The property of a table that is its comment."""
_PORT = 9083
_OWNER = "elt-assets"
_NO_STATISTICS = {"DO_NOT_UPDATE_STATS": "true"}
"""Without it, the metastore lists the files of a table at each change, to write statistics of Hive's."""
_INCOMPATIBLE = "incompatible with the existing columns"


class HiveCatalog:
    """A metastore, at one or more addresses, of which the first that answers is used.

    Args:
        uris: `thrift://HOST:PORT`, several of them separated by commas.

    Raises:
        ConfigError: the client is missing, or an address is not of this form.
    """

    kind = "the Hive Metastore"

    def __init__(self, uris: str):
        try:
            import hive_metastore.ttypes as types  # noqa: PLC0415 - of pyiceberg's extra
            from hive_metastore.ThriftHiveMetastore import Client  # noqa: PLC0415
            from thrift import Thrift  # noqa: PLC0415
            from thrift.protocol.TBinaryProtocol import TBinaryProtocol  # noqa: PLC0415
            from thrift.transport import TSocket, TTransport  # noqa: PLC0415
        except ImportError:
            raise ConfigError(
                "the client of the Hive Metastore is not installed",
                guidance="pip install 'elt-assets[hive]' where syncs run",
            ) from None
        self._types, self._thrift = types, Thrift
        self._socket, self._transport = TSocket, TTransport
        self._client, self._protocol = Client, TBinaryProtocol
        self._addresses = [_parse(uri.strip()) for uri in uris.split(",")]
        self._uris = uris

    def find(self, name: EntryName) -> Entry | None:
        table = self._ask(f"the entry {name}", lambda client: self._get(client, name))
        if table is None:
            return None
        parameters = table.parameters or {}
        columns = tuple(
            HiveColumn(column.name.lower(), column.type, column.comment or "")
            for column in (*(table.sd.cols or ()), *(table.partitionKeys or ()))
        )
        serde = table.sd.serdeInfo
        path = ((serde.parameters if serde else None) or {}).get("path", "")
        return Entry(
            name,
            hive_form.place_of(table.sd.location or "", path),
            table.tableType == hive_form.EXTERNAL,
            MARK in parameters,
            hive_form.facts(columns, parameters, path, parameters.get(_COMMENT, "")),
            table,
        )

    def facts_of(self, registration: Registration) -> Mapping[str, Any]:
        columns = hive_form.columns_of(registration.schema, _LIMITS)
        comment = hive_form.cut(registration.comment, hive_form.LONGEST_PROPERTY)
        parameters = hive_form.parameters_of(registration)
        return hive_form.facts(columns, parameters, registration.location, comment)

    def create(self, registration: Registration) -> None:
        what = f"the entry {registration.name}"
        table = self._table(registration)
        context = self._types.EnvironmentContext(properties=_NO_STATISTICS)

        def create(client: Any) -> Any:
            client.create_table_with_environment_context(table, context)
            return table

        if not self._has_database(registration.name):
            self._create_database(registration.name)
        if self._ask(what, create) is None:
            raise TransientError(f"the database of {what} was removed in the meantime")

    def update(self, registration: Registration, entry: Entry) -> None:
        table = self._table(registration, entry.native)
        try:
            self._alter(registration.name, table)
        except ConfigError as error:
            if _INCOMPATIBLE not in error.message:
                raise
            columns, table.sd.cols = table.sd.cols, []
            self._alter(registration.name, table)
            table.sd.cols = columns
            self._alter(registration.name, table)

    def remove(self, entry: Entry) -> None:
        name = entry.name
        self._ask(f"the entry {name}", lambda client: client.drop_table(*_pair(name), False))

    def _table(self, registration: Registration, former: Any = None) -> Any:
        """Return an entry, with what others set in the former one."""
        types, facts = self._types, self.facts_of(registration)
        others = hive_form.keep_others((former.parameters if former else None) or {})
        parameters = {**others, **hive_form.parameters_of(registration)}
        parameters.pop(_COMMENT, None)
        if facts["comment"]:
            parameters[_COMMENT] = facts["comment"]
        table = former or types.Table(
            tableName=registration.name.table, dbName=registration.name.database, owner=_OWNER
        )
        table.tableType, table.parameters, table.partitionKeys = hive_form.EXTERNAL, parameters, []
        table.sd = types.StorageDescriptor(
            cols=[types.FieldSchema(*column) for column in facts["columns"]],
            location=registration.location,
            inputFormat=hive_form.INPUT_FORMAT,
            outputFormat=hive_form.OUTPUT_FORMAT,
            serdeInfo=types.SerDeInfo(
                serializationLib=hive_form.SERDE,
                parameters={"path": registration.location, "serialization.format": "1"},
            ),
        )
        return table

    def _get(self, client: Any, name: EntryName) -> Any:
        """Return an entry, by the request of all versions since 2.3; else by that of older ones."""
        request = self._types.GetTableRequest(dbName=name.database, tblName=name.table)
        try:
            return client.get_table_req(request).table
        except self._thrift.TApplicationException as error:
            if error.type != error.UNKNOWN_METHOD:
                raise
        return client.get_table(*_pair(name))

    def _alter(self, name: EntryName, table: Any) -> None:
        context = self._types.EnvironmentContext(properties=_NO_STATISTICS)

        def alter(client: Any) -> Any:
            client.alter_table_with_environment_context(*_pair(name), table, context)
            return table

        if self._ask(f"the entry {name}", alter) is None:
            raise TransientError(f"the entry {name} was removed in the meantime")

    def _has_database(self, name: EntryName) -> bool:
        what = f"the database {name.database}"
        return self._ask(what, lambda client: client.get_database(name.database)) is not None

    def _create_database(self, name: EntryName) -> None:
        """Create the database, without a place of its own: a table has one, and what drops a database with
        its tables also removes the folder of the database."""
        database = self._types.Database(
            name=name.database, description="Delta tables, registered by elt-assets", parameters={}
        )
        try:
            self._ask(
                f"the database {name.database}", lambda client: client.create_database(database)
            )
        except EntryExists:
            return

    def _ask(self, what: str, request: Callable[[Any], Any]) -> Any:
        """Return the answer to a request; None if there is no such entry, or no such database."""
        transport = self._connect()
        try:
            return request(self._client(self._protocol(transport)))
        except self._types.NoSuchObjectException:
            return None
        except (OSError, EOFError, self._transport.TTransportException) as error:
            failure: EltError = unreachable(self.kind, self._uris, _text_of(error))
        except self._thrift.TException as error:
            failure = self._explain(error, what)
        finally:
            transport.close()
        raise failure

    def _connect(self) -> Any:
        """Return a connection to the first address that accepts one."""
        reasons = []
        for host, port in self._addresses:
            socket = self._socket.TSocket(host, port)
            socket.setTimeout(CONNECT_SECONDS * 1000)
            transport = self._transport.TBufferedTransport(socket)
            try:
                transport.open()
            except (OSError, self._transport.TTransportException) as error:
                reasons.append(_text_of(error))
            else:
                socket.setTimeout(REQUEST_SECONDS * 1000)
                return transport
        raise unreachable(self.kind, self._uris, "; ".join(reasons))

    def _explain(self, error: Any, what: str) -> EltError:
        message = str(getattr(error, "message", None) or error).partition("\n")[0]
        if isinstance(error, self._types.AlreadyExistsException):
            return EntryExists(f"{what} exists in {self.kind}")
        if isinstance(error, self._thrift.TApplicationException):
            return SystemFailure(
                f"{self.kind} at {self._uris} cannot answer for {what}: {message}",
                guidance="use a metastore of Hive 2.3 or newer without SASL or Kerberos",
            )
        return ConfigError(
            f"{self.kind} refuses {what}: {message}",
            guidance="correct what the message names, or the metastore by its log (if its database stores "
            "only Latin-1, set `comments = false` in [tool.elt.catalog]); the next sync tries again, and so "
            "does `elt publish`",
        )


def _pair(name: EntryName) -> tuple[str, str]:
    return name.database, name.table


def _text_of(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def _parse(uri: str) -> tuple[str, int]:
    """Return the host and the port of an address.

    Raises:
        ConfigError: it has another form.
    """
    parts = urlsplit(uri)
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if parts.scheme != "thrift" or not host or parts.path.strip("/") or parts.username:
        raise ConfigError(
            f"[tool.elt.catalog] uri: {uri!r} is no address of a Hive Metastore",
            guidance=f"write thrift://HOST:{_PORT}, or several of them, separated by commas",
        )
    return host, port or _PORT
