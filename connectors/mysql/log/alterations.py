"""What ALTER TABLE does to the rows of its table and of others that it names.

Spec: MySQL and MariaDB, ALTER TABLE; MariaDB, Partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from connectors.mysql.log.forms import TableName
from connectors.mysql.log.tokens import NotUnderstood, Token, TokenReader, split_at_commas
from connectors.mysql.tables import ELSEWHERE

_PARTS = {
    "ANALYZE", "CHECK", "COALESCE", "CONVERT", "DISCARD", "DROP", "EXCHANGE", "IMPORT", "OPTIMIZE", "REBUILD",
    "REORGANIZE", "REPAIR", "TRUNCATE",
}  # fmt: skip
"""What is done to partitions. Such a part is the last one of a statement."""
_LOSSES = {"CONVERT", "DISCARD", "DROP", "EXCHANGE", "IMPORT", "TRUNCATE"}
_CHANGES = {
    "ADD", "ALGORITHM", "ALTER", "CHANGE", "CONVERT", "DISABLE", "DROP", "ENABLE", "FORCE", "LOCK", "MODIFY",
    "ORDER", "PARTITION", "REMOVE", "RENAME", "SECONDARY_LOAD", "SECONDARY_UNLOAD", "UPGRADE", "WITH",
    "WITHOUT",
}  # fmt: skip
_OPTIONS = {
    "AUTO_INCREMENT", "AUTOEXTEND_SIZE", "AVG_ROW_LENGTH", "CHARACTER", "CHARSET", "CHECKSUM", "COLLATE",
    "COMMENT", "COMPRESSION", "CONNECTION", "DATA", "DEFAULT", "DELAY_KEY_WRITE", "ENCRYPTION", "ENGINE",
    "ENGINE_ATTRIBUTE", "IETF_QUOTES", "INDEX", "INSERT_METHOD", "KEY_BLOCK_SIZE", "MAX_ROWS", "MIN_ROWS",
    "PACK_KEYS", "PAGE_CHECKSUM", "PASSWORD", "ROW_FORMAT", "SECONDARY_ENGINE", "SECONDARY_ENGINE_ATTRIBUTE",
    "START", "STATS_AUTO_RECALC", "STATS_PERSISTENT", "STATS_SAMPLE_PAGES", "STORAGE", "TABLE_CHECKSUM",
    "TABLESPACE", "TRANSACTIONAL", "TYPE", "UNION",
}  # fmt: skip


@dataclass
class Alteration:
    """What an ALTER TABLE does.

    Attributes:
        table: the one that it alters.
        target: the new name of the table.
        others: the tables that get its rows, or give it theirs.
        is_lossy: whether rows are gone or new, and the log does not say which.
    """

    table: TableName
    target: TableName | None = None
    others: set[TableName] = field(default_factory=set)
    is_lossy: bool = False


def read_alteration(reader: TokenReader) -> Alteration | None:
    """Return what a statement does, from the word after ALTER; None if it is not about a table.

    Raises:
        NotUnderstood: it has a part whose meaning is unknown.
    """
    # IGNORE removes rows that have the same value of a new key, or fit in no partition.
    is_lossy = "IGNORE" in [token.keyword for token in reader.rest[:2]]
    reader.take_all({"ONLINE", "OFFLINE", "IGNORE"})
    if not reader.take("TABLE"):
        return None
    reader.take("IF", "EXISTS")
    alteration = Alteration(reader.take_table(), is_lossy=is_lossy)
    reader.take_wait()
    if _is_about_parts(reader.rest):
        alteration.is_lossy |= reader.keyword in _LOSSES
        alteration.others |= _list_tables(reader)
        return alteration
    for part in split_at_commas(reader.rest):
        _read_part(reader.fork(part), alteration)
    return alteration


def _is_about_parts(tokens: Sequence[Token]) -> bool:
    """Return whether a statement is about partitions or the tablespace, and then about nothing else."""
    first, second = (*(token.keyword for token in tokens[:2]), "", "")[:2]
    if second == "TABLESPACE":
        return first in _LOSSES
    return (second == "PARTITION" and first in _PARTS) or (first, second) == ("CONVERT", "TABLE")


def _list_tables(reader: TokenReader) -> set[TableName]:
    """Return the tables of `WITH TABLE name`, `TO TABLE name` and `CONVERT TABLE name`."""
    tables = set()
    while not reader.is_end:
        if reader.skip() == "TABLE":
            tables.add(reader.take_table())
    return tables


def _read_part(part: TokenReader, alteration: Alteration) -> None:
    if part.keyword == "RENAME":
        part.skip()
        if part.keyword not in ("COLUMN", "INDEX", "KEY"):
            part.take_all({"TO", "AS", "="})
            alteration.target = part.take_table()
    elif part.keyword not in _CHANGES:
        _read_options(part, alteration)


def _read_options(part: TokenReader, alteration: Alteration) -> None:
    """Read options of the table, which need no commas between them.

    Raises:
        NotUnderstood: it is no option.
    """
    options = [token.keyword for token in part.rest]
    if options and options[0] not in _OPTIONS and options[1:2] != ["="]:
        raise NotUnderstood(f"with {options[0] or 'a text'}")
    alteration.is_lossy |= "UNION" in options
    for place, option in enumerate(options):
        if option in ("ENGINE", "TYPE"):
            engine = [token.text.upper() for token in part.rest[place + 1 :] if token.text != "="]
            alteration.is_lossy |= bool(ELSEWHERE.intersection(engine[:1]))
