"""Descriptions of tables in the log: the names, types and character sets of their columns.

Spec: MySQL, Table_map_event and its optional metadata (`binlog_row_metadata = FULL`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from connectors.cdc.texts import RESET
from connectors.mysql.dialect import quote_name
from connectors.mysql.log import fields
from connectors.mysql.log.fields import Field, make_reader
from elt_assets.errors import ConfigError

_SIGNS, _CHARSET, _CHARSETS, _NAMES, _SETS, _ENUMS, _MEMBER_CHARSET, _MEMBER_CHARSETS = (
    1, 2, 3, 4, 5, 6, 10, 11,
)  # fmt: skip


TableName = tuple[str, str]
"""The database and the name of a table."""
Row = Sequence["bytes | None"]
"""The texts of a row's columns."""


@dataclass(frozen=True)
class TableForm:
    """A table as the log describes it. `fields`: its columns."""

    database: str
    name: str
    fields: tuple[Field, ...]

    def __str__(self) -> str:
        return quote_name(self.database, self.name)

    @property
    def names(self) -> list[str]:
        return [described.name for described in self.fields]


@dataclass(frozen=True)
class LoggedTable:
    """A table of the log, and the functions that decode the values of its columns."""

    form: TableForm
    readers: Sequence[fields.Reader]


def fold_name(table: TableName, *, folds: bool) -> TableName:
    """Return a name as it is compared with others.

    Args:
        folds: whether the server compares names without regard to case (`lower_case_table_names`).
    """
    return (_fold(table[0]), _fold(table[1])) if folds else table


def _fold(text: str) -> str:
    # As the server: character by character, each of which stays one.
    return "".join(character.lower()[0] for character in text)


def read_name(body: bytes) -> TableName:
    """Return the database and the name of a described table. `body`: after its number and flags."""
    size = body[0]
    start = size + 3
    return body[1 : 1 + size].decode(), body[start : start + body[start - 1]].decode()


def parse_table(body: bytes, *, is_mariadb: bool) -> LoggedTable:
    """Return the description of a table. `body`: after its number and flags.

    Raises:
        ConfigError: the log does not describe its columns.
    """
    database, name = read_name(body)
    place = body[0] + 3
    place += body[place - 1] + 1
    count, place = read_number(body, place)
    types = body[place : place + count]
    size, place = read_number(body, place + count)
    columns = fields.split_meta(types, body[place : place + size])
    optional = dict(_split_optional(body[place + size + (count + 7) // 8 :]))
    names = [text for text, _ in _read_texts(optional.get(_NAMES, b""), 0)]
    if len(names) != count:
        table = quote_name(database, name)
        raise ConfigError(
            f"the log does not have the names of the columns of {table}: a part was written without them",
            guidance=f"SET GLOBAL binlog_row_metadata = 'FULL'; and {RESET}",
        )
    described = _describe(names, columns, optional, is_mariadb=is_mariadb)
    return LoggedTable(
        TableForm(database, name, tuple(described)), [make_reader(f) for f in described]
    )


def _describe(
    names: Sequence[bytes],
    columns: Sequence[tuple[int, bytes]],
    optional: Mapping[int, bytes],
    *,
    is_mariadb: bool,
) -> list[Field]:
    character = fields.MARIADB_CHARACTER if is_mariadb else fields.CHARACTER
    types = [kind for kind, _ in columns]
    members = (fields.ENUM, fields.SET)
    signs = iter(_read_bits(optional.get(_SIGNS, b"")))
    collations = iter(
        _read_collations(optional, _CHARSET, _CHARSETS, sum(kind in character for kind in types))
    )
    others = iter(
        _read_collations(
            optional, _MEMBER_CHARSET, _MEMBER_CHARSETS, sum(kind in members for kind in types)
        )
    )
    values = {
        fields.ENUM: iter(_read_members(optional.get(_ENUMS, b""))),
        fields.SET: iter(_read_members(optional.get(_SETS, b""))),
    }
    result = []
    for name, (kind, meta) in zip(names, columns, strict=True):
        is_unsigned = kind in fields.NUMERIC and next(signs, False)
        collation = next(collations) if kind in character else 0
        if kind in members:
            collation = next(others)
        chosen = next(values[kind]) if kind in members else ()
        result.append(Field(name.decode(), kind, meta, is_unsigned, collation, chosen))
    return result


def _split_optional(data: bytes) -> Iterator[tuple[int, bytes]]:
    place = 0
    while place < len(data):
        kind = data[place]
        size, place = read_number(data, place + 1)
        yield kind, data[place : place + size]
        place += size


def _read_bits(data: bytes) -> Iterator[bool]:
    return (bool(byte >> bit & 1) for byte in data for bit in range(7, -1, -1))


def _read_numbers(data: bytes) -> Iterator[int]:
    place = 0
    while place < len(data):
        number, place = read_number(data, place)
        yield number


def _read_collations(
    optional: Mapping[int, bytes], default: int, column: int, count: int
) -> list[int]:
    """Return the collations of columns: one for each, or that of most and pairs of a number and another."""
    if column in optional:
        return list(_read_numbers(optional[column]))
    numbers = list(_read_numbers(optional.get(default, b"\0")))
    result = [numbers[0]] * count
    for place, collation in zip(numbers[1::2], numbers[2::2], strict=True):
        result[place] = collation
    return result


def _read_texts(data: bytes, place: int) -> Iterator[tuple[bytes, int]]:
    while place < len(data):
        size, place = read_number(data, place)
        yield data[place : place + size], place + size
        place += size


def _read_members(data: bytes) -> Iterator[list[bytes]]:
    place = 0
    while place < len(data):
        count, place = read_number(data, place)
        texts = []
        for text, end in islice(_read_texts(data, place), count):
            texts.append(text)
            place = end
        yield texts


def read_number(data: bytes, place: int) -> tuple[int, int]:
    """Return a number of the protocol's variable length, and the place after it."""
    first = data[place]
    if first < 0xFB:
        return first, place + 1
    width = {0xFC: 2, 0xFD: 3, 0xFE: 8}[first]
    return int.from_bytes(data[place + 1 : place + 1 + width], "little"), place + 1 + width
