"""Connections to the server, on which nothing is written."""

from __future__ import annotations

import re
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from connectors.mysql.config import MySqlConfig
from connectors.mysql.errors import UnsafeLogin, translate
from connectors.sql.limits import StatementLimit
from connectors.sql.server import write_certificates
from elt_assets.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

_TIMEOUTS = "net_write_timeout = 3600, net_read_timeout = 3600, wait_timeout = 28800, lock_wait_timeout = 60"
_SETTINGS = (
    f"SET SESSION autocommit = 1, time_zone = '+00:00', sql_mode = '', {_TIMEOUTS}",
    "SET SESSION TRANSACTION READ ONLY",
)
"""Settings by which texts of values depend on nothing, and a reader that is slow for a while is not cut."""
_ENDED = (1969, 3024)
"""Numbers of the error of a query that takes too long: of MariaDB, and of MySQL."""
_CLIENT_SSL = 1 << 11
"""The capability CLIENT_SSL."""
_PREPARE, _EXECUTE = 0x16, 0x17
"""The commands COM_STMT_PREPARE and COM_STMT_EXECUTE."""
_END_OF_EVENTS, _MAX_END_BYTES = 0xFE, 9
"""How a packet begins after which no event comes, and what its length is below."""

Row = tuple["str | None", ...]


class Session:
    """A connection; `purpose` says in errors what fails. `gtids`: what a replica had when it was opened; None
    for no replica."""

    def __init__(self, connection: Any, purpose: str):
        self._connection = connection
        self.purpose = purpose
        self.gtids: str | None = None
        self._limit: StatementLimit | None = None

    @property
    def version(self) -> str:
        """The version as the server writes it, such as `10.11.6-MariaDB`."""
        return str(self._connection.get_server_info())

    @property
    def version_number(self) -> tuple[int, int]:
        """The first two numbers of the version; (0, 0) if the server names none."""
        # MariaDB 10 names itself 5.5.5-10.… to old replicas.
        match = re.match(r"(\d+)\.(\d+)", self.version.removeprefix("5.5.5-"))
        return (int(match[1]), int(match[2])) if match else (0, 0)

    @property
    def is_mariadb(self) -> bool:
        return "mariadb" in self.version.lower()

    def execute(self, command: str) -> None:
        """Run a command without a result.

        Raises:
            EltError: the server refuses it.
        """
        with self._translate_errors():
            self._connection.query(command)

    def limit_statements(self, limit: StatementLimit | None) -> None:
        """Let the server end each query after some time; with None, none is ended, by whatever setting."""
        milliseconds = 0 if limit is None else limit.milliseconds
        if self.is_mariadb:
            self.execute(f"SET SESSION max_statement_time = {milliseconds / 1000}")
        else:
            self.execute(f"SET SESSION max_execution_time = {milliseconds}")
        self._limit = limit

    def rows(self, query: str) -> list[Row]:
        """Return the few rows of a query, as the server's texts.

        Raises:
            EltError: the server refuses it.
        """
        with self._translate_errors(), self._connection.cursor() as cursor:
            cursor.execute(query)
            return [tuple(map(_text, row)) for row in cursor.fetchall()]

    def columns(self, query: str) -> Iterator[list[pa.Array]]:
        """Yield the rows of a query as they come: the values of each column (see `connectors.mysql.rows`).

        The statement is prepared, because only then does the server send numbers as it has them; it is
        forgotten with the connection.

        Raises:
            EltError: the server refuses it, or the connection is cut.
        """
        from connectors.mysql import rows, wire  # noqa: PLC0415 - `spec` needs no Arrow

        with self._translate_errors():
            types = [rows.WireType(*numbers) for numbers in self._run_prepared(query)]
            stream = self._connection._rfile
            # After what it has in its buffer, which is all that `read1` returns, bytes come without it.
            packets = wire.Packets(stream.read1(), stream.raw.readinto)
            try:
                for block in packets.blocks():
                    yield rows.read_columns(block, types)
            except wire.RefusedRead as refusal:
                raise _error_of(refusal.payload) from None
            except wire.Cut:
                raise _driver().err.OperationalError(2013, "the connection was cut") from None

    def _run_prepared(self, query: str) -> list[tuple[int, int]]:
        """Run a query so that its rows come in the binary protocol; return its columns' types and flags."""
        connection = self._connection
        connection._execute_command(_PREPARE, query)
        statement, count = struct.unpack_from("<xIH", connection._read_packet().get_all_data())
        for _ in range(count + 1):  # a description of each column, and its end
            connection._read_packet()
        connection._execute_command(_EXECUTE, struct.pack("<IBI", statement, 0, 1))
        count = connection._read_packet().read_length_encoded_integer()
        description = _driver().connections.FieldDescriptorPacket
        columns = [connection._read_packet(description) for _ in range(count)]
        connection._read_packet()
        return [(column.type_code, column.flags) for column in columns]

    def events(self, request: bytes) -> Iterator[bytes]:
        """Yield the events of the log that the server sends for a request, up to the end of the log.

        Raises:
            EltError: the server refuses it, or the connection is cut.
        """
        connection = self._connection
        with self._translate_errors():
            connection._execute_command(request[0], request[1:])
            while True:
                packet = connection._read_packet()
                data = packet.get_all_data()
                if data[0] == _END_OF_EVENTS and len(data) < _MAX_END_BYTES:
                    return
                yield data[1:]

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except (_driver().err.MySQLError, OSError, RuntimeError) as error:
            if self._limit is not None and error.args[:1] in [(number,) for number in _ENDED]:
                raise self._limit.make_error(self.purpose) from None
            raise translate(error, self.purpose) from None


@contextmanager
def open_session(
    config: MySqlConfig, purpose: str, limit: StatementLimit | None = None
) -> Iterator[Session]:
    """Open a connection on which nothing can be written, and whose times are in UTC.

    Args:
        limit: how long each query may take.

    Raises:
        EltError: the server cannot be reached, or refuses the connection.
    """
    driver = _driver()
    try:
        connection = _connect(config)
    except (driver.err.MySQLError, OSError, RuntimeError) as error:
        raise translate(error, f"the server {config.place} cannot be reached") from None
    try:
        session = Session(connection, purpose)
        for command in _SETTINGS:
            session.execute(command)
        session.limit_statements(limit)
        yield session
    finally:
        _close(connection)


def _connect(config: MySqlConfig) -> Any:
    password = "" if config.password is None else config.password.get_secret_value()
    connection = _connection_type()(
        host=config.host,
        port=config.port,
        user=config.user,
        password=password.encode(),
        charset="utf8mb4",
        use_unicode=False,
        autocommit=None,
        connect_timeout=config.connect_timeout,
        program_name="elt",
        defer_connect=True,
        local_infile=False,  # a server may ask for any file
        auth_plugin_map={} if config.cleartext_password else _REFUSED,
        **({"ssl_disabled": True} if config.ssl_mode == "disabled" else {"ssl": _tls(config)}),
    )
    connection.decoders = {}
    if config.ssl_mode == "preferred":
        # The driver's own context for this loads all authorities of the system for each connection: 25 ms.
        connection._ssl_required = False
        connection.client_flag &= ~_CLIENT_SSL
    connection.connect()
    return connection


class _Refusal:
    """A way to log in that is refused: the driver asks its object for the answer."""

    what = "itself"
    guidance = (
        "let the account log in by a hash of its password: ALTER USER … IDENTIFIED …; or, if the server "
        "needs it (PAM, LDAP), set `cleartext_password: true` and `ssl_mode: verify_identity`"
    )

    def __init__(self, connection: Any):
        del connection

    def authenticate(self, packet: Any) -> Any:
        raise UnsafeLogin(self.what, self.guidance)


class _OldRefusal(_Refusal):
    what = "by `mysql_old_password`, whose hash shows it"
    guidance = "give the account a password of a later kind: ALTER USER … IDENTIFIED …"


_REFUSED = {"mysql_clear_password": _Refusal, "dialog": _Refusal, "mysql_old_password": _OldRefusal}
"""Ways to log in that show the password to the server. The `mysql` client refuses them by default, too, even
with TLS: somebody between has a certificate of his own, unless it is verified."""


def _connection_type() -> type[Any]:
    """Return the driver's connection, which does not take the key of a server to encrypt the password with.

    Without TLS somebody between sends a key of his own. The `mysql` client takes none by default, too.
    """

    def refuse(_: Any, key: object = b"") -> None:
        if key is not None:
            raise UnsafeLogin(
                "encrypted by a key that it sends without TLS",
                "set `ssl_mode` to `verify_identity`, or at least to `required`",
            )

    connection: type[Any] = _driver().connections.Connection
    return type("Connection", (connection,), {"server_public_key": property(refuse, refuse)})


def _close(connection: Any) -> None:
    """Close a connection without a wait for the rest of its rows."""
    with suppress(Exception):
        connection._force_close()


def _tls(config: MySqlConfig) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = config.ssl_mode == "verify_identity"
    context.verify_mode = (
        ssl.CERT_REQUIRED if config.ssl_mode.startswith("verify") else ssl.CERT_NONE
    )
    try:
        if config.ssl_root_certificate is not None:
            context.load_verify_locations(cadata=config.ssl_root_certificate)
        with write_certificates(config) as files:
            if "ssl_key" in files:
                context.load_cert_chain(files["ssl_certificate"], files["ssl_key"], password="")
    except (ssl.SSLError, ValueError):
        raise ConfigError(
            "a certificate or a key of the config cannot be read",
            guidance="correct `ssl_root_certificate`, `ssl_certificate` and `ssl_key` (without a password)",
        ) from None
    return context


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "surrogateescape")


def _error_of(payload: bytes) -> Exception:
    """Return the error of an error packet: a mark, the number, and the message after a state of 6 bytes."""
    (number,) = struct.unpack_from("<H", payload, 1)
    text = payload[3:].decode("utf-8", "replace")
    error: Exception = _driver().err.OperationalError(number, text[6:] if text[:1] == "#" else text)
    return error


def _driver() -> Any:
    """Return the driver, which `spec` does not need.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        import pymysql  # noqa: PLC0415 - `spec` does not need it
    except ModuleNotFoundError:
        raise ConfigError(
            "the source mysql needs the module pymysql, which is not installed",
            guidance="pip install 'elt-assets[mysql]'",
        ) from None
    return pymysql
