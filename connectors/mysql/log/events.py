"""Decodes the events of the log for `windows`: transactions, the rows that they change, and statements.

Rows follow the description of their table, which has the names of columns, whether they are unsigned, their
collations and the members of ENUM and SET (`binlog_row_metadata = FULL`): what the log says depends on
nothing that is looked up later.

Spec: MySQL, Binary Log Event Types; MariaDB, Replication Protocol.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from connectors.cdc.texts import RESET, RESET_ALL
from connectors.mysql.dialect import quote_name
from connectors.mysql.log.dump import FORMAT, ROTATE
from connectors.mysql.log.fields import Reader
from connectors.mysql.log.forms import (
    LoggedTable,
    Row,
    TableForm,
    TableName,
    parse_table,
    read_name,
    read_number,
)
from connectors.mysql.log.position import Gtid
from elt_assets.errors import ConfigError, EltError, SystemFailure, TransientError

INSERT, UPDATE, DELETE = "insert", "update", "delete"
_QUERY, _XID, _TABLE_MAP = 2, 16, 19
_LOADED, _INCIDENT, _GTID, _ANONYMOUS, _XA_PREPARE, _PARTIAL, _PAYLOAD, _TAGGED = (
    18, 26, 33, 34, 38, 39, 40, 42,
)  # fmt: skip
_MARIADB_GTID, _COMPRESSED_QUERY = 162, 165
_ROWS = {23: INSERT, 24: UPDATE, 25: DELETE, 30: INSERT, 31: UPDATE, 32: DELETE}
_COMPRESSED_ROWS = {166: 23, 167: 24, 168: 25, 169: 30, 170: 31, 171: 32}
_SECOND_VERSION = 30
_BEGINS = (_GTID, _ANONYMOUS, _MARIADB_GTID, _TAGGED)
_QUERIES = (_QUERY, _COMPRESSED_QUERY, _LOADED)
_IGNORED = {
    3, 5, 6, 13, 14, 17, 27, 29, 35, 36, 37, 41,  # stops, variables, heartbeats, comments, groups
    160, 161, 163, 164,
}  # fmt: skip
_HEADER = struct.Struct("<IBIIIH")
_CHECKSUM_BYTES = 4
_STANDALONE = 1
"""The flag of MariaDB's transactions that are one statement, without an end."""
_QUERY_START, _LOADED_START = 13, 26
"""Where the variables of a statement begin, after its sizes; of LOAD DATA, after the places in its file."""
_MAX_TABLES = 1_000
"""Descriptions of tables that are kept; they come again with each transaction."""


@dataclass(frozen=True)
class Begin:
    """The beginning of a transaction. `time`: of its commit, in microseconds since 1970."""

    gtid: Gtid
    time: int


@dataclass(frozen=True)
class Rows:
    """Rows of a table before and after a change: texts of all columns.

    An insert has no rows before, and a delete has none after.
    """

    form: TableForm
    before: Sequence[Row]
    after: Sequence[Row]


@dataclass(frozen=True)
class Statement:
    """A statement that is in the log as a text.

    `database`: that of the session that ran it; `sql_mode`: its mode, as bits.
    """

    database: str
    text: str
    sql_mode: int = 0


@dataclass(frozen=True)
class End:
    """The end of a transaction."""


Entry = Begin | Rows | Statement | End


@dataclass
class EventDecoder:
    """Decodes the events of a log, in their order.

    Attributes:
        is_wanted: tells whether rows of a table, by its database and name, are decoded in a transaction.
        read_text: returns a text of the character set of a collation, by its number.
    """

    is_wanted: Callable[[TableName, Gtid], bool]
    read_text: Callable[[bytes, int], str]
    is_mariadb: bool
    file: str = ""
    _has_checksums: bool = False
    _is_open: bool = False
    _is_standalone: bool = False
    _gtid: Gtid | None = None
    _tables: dict[int, bytes] = field(default_factory=dict)
    _described: dict[bytes, LoggedTable] = field(default_factory=dict)

    def decode(self, event: bytes) -> Iterator[Entry]:
        """Yield what an event says.

        Raises:
            ConfigError: the log has changes in a form that cannot be read.
            SystemFailure: it has an event of an unknown kind.
            TransientError: the event is damaged.
        """
        kind = event[4]
        body = event[_HEADER.size :]
        if kind == FORMAT:
            self._has_checksums = body[-1 - _CHECKSUM_BYTES] == 1
            self._tables.clear()
        elif kind == ROTATE:
            # The first one comes before the log says whether there are checksums.
            end = -_CHECKSUM_BYTES if _is_checked(event) else None
            self.file = body[8:end].decode("utf-8", "replace")
            self._tables.clear()
        else:
            yield from self._decode_body(event, kind, self._check(event, body))

    def _check(self, event: bytes, body: bytes) -> bytes:
        if not self._has_checksums:
            return body
        if not _is_checked(event):
            raise TransientError(
                f"an event of the log {self.file} is damaged: its checksum differs",
                guidance="run it again; if it happens again, check the disk of the server",
            )
        return body[:-_CHECKSUM_BYTES]

    def _decode_body(self, event: bytes, kind: int, body: bytes) -> Iterator[Entry]:
        if kind in _COMPRESSED_ROWS:
            kind = _COMPRESSED_ROWS[kind]
            body = _expand_rows(kind, body)
        if kind in _ROWS:
            yield from self._decode_rows(kind, body)
        elif kind == _TABLE_MAP:
            self._add_table(body)
        elif kind in _BEGINS:
            begin = self._begin(event, kind, body)
            self._gtid = begin.gtid
            yield begin
        elif kind in (_XID, _XA_PREPARE):
            yield self._end()
        elif kind in _QUERIES:
            yield from self._decode_query(kind, body)
        elif kind == _PAYLOAD:
            for part in _expand_payload(body):
                yield from self._decode_body(part, part[4], part[_HEADER.size :])
        elif kind not in _IGNORED:
            raise _make_error(kind)

    def _begin(self, event: bytes, kind: int, body: bytes) -> Begin:
        seconds = _HEADER.unpack_from(event)[0]
        self._is_standalone = False
        if kind == _MARIADB_GTID:
            number, domain, flags = struct.unpack_from("<QIB", body)
            server = _HEADER.unpack_from(event)[2]
            self._is_standalone = bool(flags & _STANDALONE)
            self._is_open = True
            return Begin(Gtid(str(domain), number, server), seconds * 1_000_000)
        if kind != _GTID:
            form = "with a tag" if kind == _TAGGED else "without a number (GTID)"
            raise ConfigError(
                f"the log has a transaction {form}",
                guidance="set gtid_mode and enforce_gtid_consistency to ON, leave gtid_next at AUTOMATIC, "
                f"and {RESET_ALL}",
            )
        self._is_open = False
        time = _commit_time(body) or seconds * 1_000_000
        return Begin(Gtid(_uuid_text(body[1:17]), int.from_bytes(body[17:25], "little")), time)

    def _end(self) -> End:
        self._is_open = False
        return End()

    def _decode_query(self, kind: int, body: bytes) -> Iterator[Entry]:
        """Yield a statement. It is a whole transaction if none has begun."""
        size, status = body[8], int.from_bytes(body[11:13], "little")
        start = (_LOADED_START if kind == _LOADED else _QUERY_START) + status
        database = body[start : start + size].decode("utf-8", "replace")
        sql = body[start + size + 1 :]
        sql_mode, collation = _read_session(body[start - status : start])
        text = self.read_text(_expand(sql) if kind == _COMPRESSED_QUERY else sql, collation)
        words = text[:20].upper().split(None, 2)
        if words[:1] == ["BEGIN"] or words[:2] == ["XA", "START"]:
            self._is_open = True
        elif words[:1] == ["COMMIT"]:
            yield self._end()
        else:
            yield Statement(database, text, sql_mode)
            is_end = words[:2] in (["XA", "COMMIT"], ["XA", "ROLLBACK"]) or words == ["ROLLBACK"]
            if is_end or self._is_standalone or not self._is_open:
                yield self._end()

    def _add_table(self, body: bytes) -> None:
        """Take the description of a table, which rows then name by its number."""
        self._tables[int.from_bytes(body[:6], "little")] = body[8:]

    def _find_table(self, number: int) -> LoggedTable | None:
        """Return a table whose rows are wanted.

        Its description is only read then: what the log lacks of others, or of former rows, is no error.
        """
        body = self._tables.get(number)
        if body is None or self._gtid is None or not self.is_wanted(read_name(body), self._gtid):
            return None
        table = self._described.get(body)
        if table is None:
            if len(self._described) >= _MAX_TABLES:
                self._described.clear()
            table = self._described[body] = parse_table(body, is_mariadb=self.is_mariadb)
        return table

    def _decode_rows(self, kind: int, body: bytes) -> Iterator[Rows]:
        table = self._find_table(int.from_bytes(body[:6], "little"))
        if table is None:
            return
        operation = _ROWS[kind]
        count, masks, place = _read_masks(kind, body)
        _require_all(table.form, count, masks)
        rows = list(_read_rows(table.readers, body, place))
        if operation == UPDATE:
            yield Rows(table.form, rows[0::2], rows[1::2])
        elif operation == INSERT:
            yield Rows(table.form, (), rows)
        else:
            yield Rows(table.form, rows, ())


def _read_session(variables: bytes) -> tuple[int, int]:
    """Return the mode of the session that ran a statement, and the collation of the statement's text.

    Spec: MySQL, Query_event, Status variables. They are written in an order in which only those come before
    the character set whose sizes are known.
    """
    sql_mode = collation = place = 0
    while place < len(variables):
        code, place = variables[place], place + 1
        if code == _SQL_MODE:
            sql_mode = int.from_bytes(variables[place : place + 8], "little")
        elif code == _CHARSET:
            return sql_mode, int.from_bytes(variables[place : place + 2], "little")
        size = _VARIABLE_BYTES.get(code)
        if size is None:
            break
        place += size or 1 + variables[place]
    return sql_mode, collation


_SQL_MODE, _CHARSET = 1, 4
_VARIABLE_BYTES = {0: 4, _SQL_MODE: 8, 3: 4, 6: 0}
"""Sizes of the variables of a statement; 0 if the size comes first."""


def _is_checked(event: bytes) -> bool:
    """Return whether an event ends with its checksum."""
    expected = int.from_bytes(event[-_CHECKSUM_BYTES:], "little")
    return zlib.crc32(event[:-_CHECKSUM_BYTES]) == expected


def _make_error(kind: int) -> EltError:
    if kind == _PARTIAL:
        return ConfigError(
            "the log has only parts of JSON values",
            guidance=f"SET GLOBAL binlog_row_value_options = ''; and {RESET_ALL}",
        )
    if kind == _INCIDENT:
        return ConfigError(
            "the server says that its log has lost changes (an incident event)",
            guidance=RESET_ALL,
        )
    return SystemFailure(
        f"the log has an event of the unknown kind {kind}",
        guidance="this is a defect of this project, or the server is newer than it: report it",
    )


def _read_rows(readers: Sequence[Reader], data: bytes, place: int) -> Iterator[Row]:
    """Yield the rows of an event: which of their values are null, and the others one after another."""
    count, end = len(readers), len(data)
    width = (count + 7) // 8
    numbered = [(reader, 1 << number) for number, reader in enumerate(readers)]
    while place < end:
        nulls = int.from_bytes(data[place : place + width], "little")
        place += width
        row: list[bytes | None] = []
        for read, bit in numbered:
            if nulls & bit:
                row.append(None)
            else:
                value, place = read(data, place)
                row.append(value)
        yield row


def _read_masks(kind: int, body: bytes) -> tuple[int, Sequence[bytes], int]:
    """Return the number of columns, which of them rows have before and after, and where the rows begin."""
    place = 8 + (int.from_bytes(body[8:10], "little") if kind >= _SECOND_VERSION else 0)
    count, place = read_number(body, place)
    width, images = (count + 7) // 8, 2 if _ROWS[kind] == UPDATE else 1
    masks = [body[place + n * width : place + (n + 1) * width] for n in range(images)]
    return count, masks, place + images * width


def _require_all(form: TableForm, count: int, masks: Sequence[bytes]) -> None:
    """Check that rows have all columns.

    Raises:
        ConfigError: they have not.
    """
    whole = (1 << count) - 1
    if any(int.from_bytes(mask, "little") & whole != whole for mask in masks):
        raise ConfigError(
            f"the log has only some columns of rows of {quote_name(form.database, form.name)}: a session "
            "wrote it without full images",
            guidance="SET GLOBAL binlog_row_image = 'FULL'; in no session set another value, and "
            f"{RESET}",
        )


def _expand_rows(kind: int, body: bytes) -> bytes:
    """Return the body of an event whose rows MariaDB has compressed."""
    place = _read_masks(kind, body)[2]
    return body[:place] + _expand(body[place:])


def _expand(data: bytes) -> bytes:
    """Return what MariaDB has compressed: after a byte with the size of the length, and the length."""
    return zlib.decompress(data[1 + (data[0] & 7) :])


def _expand_payload(body: bytes) -> Iterator[bytes]:
    """Yield the events of a transaction that MySQL has compressed.

    Raises:
        SystemFailure: it is compressed in an unknown way.
    """
    place, header = 0, dict[int, int]()
    while True:
        kind, place = read_number(body, place)
        if not kind:
            break
        size, place = read_number(body, place)
        header[kind] = read_number(body, place)[0]
        place += size
    payload = body[place:]
    if header.get(_PAYLOAD_TYPE, _PLAIN) == _ZSTD:
        with pa.input_stream(pa.py_buffer(payload), compression="zstd") as source:
            payload = source.read()
    elif header.get(_PAYLOAD_TYPE, _PLAIN) != _PLAIN:
        raise SystemFailure(
            "a transaction of the log is compressed in an unknown way",
            guidance="SET GLOBAL binlog_transaction_compression = OFF; and report it",
        )
    place = 0
    while place < len(payload):
        size = _HEADER.unpack_from(payload, place)[3]
        yield payload[place : place + size]
        place += size


_PAYLOAD_TYPE, _ZSTD, _PLAIN = 2, 0, 255


def _commit_time(body: bytes) -> int:
    """Return the time of a commit, in microseconds since 1970; 0 if the server does not say it."""
    if len(body) < 49:  # flags, UUID, number, kind of clock, two clocks of 8 bytes, and the time
        return 0
    return int.from_bytes(body[42:49], "little") & (1 << 55) - 1


def _uuid_text(data: bytes) -> str:
    digits = data.hex()
    return "-".join([digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]])
