"""Statements that the log has in place of the rows that they changed (`binlog_format = STATEMENT`).

Spec: MySQL and MariaDB, Data Manipulation Statements.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise

from connectors.mysql.log.forms import TableName
from connectors.mysql.log.tokens import Token, TokenReader

CHANGES_OF_ROWS = {
    "(", "CALL", "DELETE", "DO", "EXECUTE", "INSERT", "LOAD", "REPLACE", "SELECT", "TABLE", "UPDATE",
    "VALUES", "WITH",
}  # fmt: skip
"""How statements begin that are in the log in place of rows: it has SELECT of a function that writes."""
_MODIFIERS = {"DELAYED", "HIGH_PRIORITY", "IGNORE", "LOW_PRIORITY", "QUICK"}
_AFTER_ONLY_TABLE = {"", "WHERE", "ORDER", "LIMIT", "RETURNING", "PARTITION", "FOR"}
"""What follows the name of a table in a DELETE of it alone."""


def find_targets(reader: TokenReader) -> set[TableName]:
    """Return the tables whose rows a statement may change, of those that it names."""
    if reader.keyword in ("SELECT", "DO", "CALL", "EXECUTE", "VALUES", "TABLE"):
        return set()
    if reader.take("INSERT") or reader.take("REPLACE"):
        reader.take_all(_MODIFIERS - {"QUICK"})
        reader.take("INTO")
        return {reader.take_table()}
    if reader.take("LOAD"):
        while not reader.take("INTO", "TABLE"):
            reader.skip()
        return {reader.take_table()}
    if reader.take("UPDATE"):
        before = list(reader.rest)
        while reader.skip() != "SET":
            pass
        return reader.fork(before[: -len(reader.rest) - 1]).list_names()
    if reader.take("DELETE"):
        reader.take_all(_MODIFIERS)
        names = reader.list_names()
        if reader.take("FROM"):
            table = reader.take_table()
            return {table} if reader.keyword in _AFTER_ONLY_TABLE else names
        return names
    return reader.list_names()


def has_query(tokens: Collection[Token]) -> bool:
    """Return whether a table is created with rows. With rows in the log, the server leaves the query out."""
    words = [token.keyword for token in tokens]
    has_values = ("VALUES", "(") in pairwise(words) or ("VALUES", "ROW") in pairwise(words)
    return has_values or "SELECT" in words or "TABLE" in words
