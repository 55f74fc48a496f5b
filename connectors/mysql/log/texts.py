"""Values of the log in other character sets and forms than those of a result set, as the server's texts.

The log has texts in the character set of their column, and geometries, UUIDs and addresses as bytes. Only the
server knows how it writes these: it is asked for each byte of a character set of single bytes once, and else
once for each different value of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from connectors.mysql.log.fields import ENUM, GEOMETRY, SET, Field
from connectors.mysql.session import Row
from connectors.mysql.tables import Column
from elt_assets.errors import SystemFailure

Ask = Callable[[str], "list[Row]"]
"""Runs a query and returns its rows."""
_AS_THEY_ARE = {"utf8", "utf8mb3", "utf8mb4", "ascii", "binary"}
_ADDRESSES = {"uuid", "inet4", "inet6"}
"""Types of MariaDB that the log has as bytes."""
_MAX_VALUES, _MAX_BYTES = 500, 1 << 20
"""The size of a query."""
_CHARSETS = """
SELECT l.ID, c.CHARACTER_SET_NAME, c.MAXLEN FROM information_schema.{lists} l
JOIN information_schema.CHARACTER_SETS c ON c.CHARACTER_SET_NAME = l.CHARACTER_SET_NAME
WHERE l.ID IS NOT NULL
"""
_LISTS = """
SELECT TABLE_NAME FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA = 'information_schema' AND COLUMN_NAME = 'ID'
  AND TABLE_NAME IN ('COLLATIONS', 'COLLATION_CHARACTER_SET_APPLICABILITY')
ORDER BY TABLE_NAME DESC LIMIT 1
"""
"""Of collations for several character sets (UCA 14.0.0), only the second list of MariaDB has numbers."""


@dataclass
class TextConverter:
    """Converts values of columns. `ask`: asks the server."""

    ask: Ask
    _charsets: dict[int, tuple[str, bool]] = field(default_factory=dict)
    _tables: dict[str, list[str]] = field(default_factory=dict)

    def read_text(self, text: bytes, collation: int) -> str:
        """Return a text of the character set of a collation; of UTF-8 if that is 0.

        Raises:
            EltError: the server refuses to convert it.
        """
        charset = "utf8mb4" if text.isascii() or not collation else self._find_charset(collation)[0]
        if charset not in _AS_THEY_ARE:
            ((converted,),) = self.ask(f"SELECT CONVERT(_{charset} X'{text.hex()}' USING utf8mb4)")
            return converted or ""
        return text.decode("utf-8", "replace")

    def convert(self, described: Field, column: Column, values: pa.BinaryArray) -> pa.BinaryArray:
        """Return the server's texts for values of a column.

        Args:
            described: the column as the log describes it.
            column: as the table has it now.

        Raises:
            EltError: the server refuses to convert one.
        """
        if described.type == GEOMETRY:
            return self._ask_each(values, "ST_AsText({})")
        if column.type_name in _ADDRESSES and described.is_padded:
            return self._ask_each(values, f"CAST({{}} AS {column.type_name})")
        if described.type in (ENUM, SET):
            return self._name_members(described, values)
        return self._convert_texts(described.collation, values)

    def _name_members(self, described: Field, values: pa.BinaryArray) -> pa.BinaryArray:
        """Return the texts of an ENUM or a SET. The members of a SET are joined by a comma as texts: in their
        own character set, that may have more than one byte."""
        members = self._convert_texts(
            described.collation, pa.array(described.members, pa.binary())
        ).to_pylist()
        numbers = values.drop_null().unique()
        if described.type == ENUM:
            named = [(b"", *members)[int(number)] for number in numbers.to_pylist()]  # 0: not valid
        else:
            named = [
                b",".join(m for n, m in enumerate(members) if int(number) >> n & 1)
                for number in numbers.to_pylist()
            ]
        return pa.array(named, pa.binary()).take(pc.index_in(values, numbers))

    def _convert_texts(self, collation: int, values: pa.BinaryArray) -> pa.BinaryArray:
        charset, is_single = self._find_charset(collation)
        if charset in _AS_THEY_ARE:
            return values
        if is_single:
            return self._translate(values, charset)
        return self._ask_each(values, f"CONVERT(_{charset} {{}} USING utf8mb4)")

    def _find_charset(self, collation: int) -> tuple[str, bool]:
        """Return the character set of a collation, and whether a character is one byte."""
        if not collation:
            return "binary", True
        if not self._charsets:
            ((lists,),) = self.ask(_LISTS)
            for number, name, length in self.ask(_CHARSETS.format(lists=lists)):
                self._charsets[int(str(number))] = (str(name), length == "1")
        if collation not in self._charsets:
            raise SystemFailure(
                f"the log has a text under the collation {collation}, which the server does not list",
                guidance="this is a defect of this project, or the server is newer than it: report it",
            )
        return self._charsets[collation]

    def _translate(self, values: pa.BinaryArray, charset: str) -> pa.BinaryArray:
        table = self._tables.get(charset)
        if table is None:
            expressions = [f"CONVERT(_{charset} X'{n:02x}' USING utf8mb4)" for n in range(256)]
            (texts,) = self.ask(f"SELECT {', '.join(expressions)}")
            table = self._tables[charset] = [str(text) for text in texts]
        characters = dict(enumerate(table))
        return pa.array(
            [
                None if value is None else value.decode("latin-1").translate(characters).encode()
                for value in values.to_pylist()
            ],
            pa.binary(),
        )

    def _ask_each(self, values: pa.BinaryArray, expression: str) -> pa.BinaryArray:
        """Return what an expression of the server gives for each value."""
        distinct = values.drop_null().unique()
        texts: list[bytes | None] = []
        for part in _split(distinct.to_pylist()):
            expressions = [expression.format(f"X'{value.hex()}'") for value in part]
            (row,) = self.ask(f"SELECT {', '.join(expressions)}")
            texts += [
                None if text is None else text.encode("utf-8", "surrogateescape") for text in row
            ]
        return pa.array(texts, pa.binary()).take(pc.index_in(values, distinct))


def _split(values: Sequence[bytes]) -> Iterator[list[bytes]]:
    part: list[bytes] = []
    size = 0
    for value in values:
        if part and (len(part) >= _MAX_VALUES or size + len(value) > _MAX_BYTES):
            yield part
            part, size = [], 0
        part.append(value)
        size += len(value)
    if part:
        yield part
