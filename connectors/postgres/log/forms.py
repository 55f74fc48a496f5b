"""What a table is, as the server's catalog says: so that a sync knows when the log has not told everything.

**The same objects.** A message of the log names a table by its number (OID), and its columns by their names
alone, as they were when a row was written. So a table is known by its number. Its columns, its partitions,
the labels of its types and its place in the publication are compared with those of the last sync, which the
state has (`TableForm`). They are read before the log is: what changes later is seen by the next sync.

What differs is one of these (`compare`):

- A column of another number has the name of one that was read: rows may have values of both. It is an error.
- The table, or the publication, has another place in the catalog: what was written between is in no log that
  this source gets. It is an error.
- A partition is new: its rows may have come with it. They are read in full (`connectors.postgres.log.start`).
- A partition is gone, a type or a name is another one, a column is read for the first time: rows in the lake
  may have other values than the server has. It is a warning.

Tests: `tests/connectors/postgres/test_log_forms.py`, `tests/connectors/postgres/test_log_model.py`
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from connectors.cdc.texts import RESET
from connectors.postgres.catalog import Relation
from connectors.postgres.dialect import quote_name, quote_text
from connectors.postgres.session import Session
from elt_assets.errors import ConfigError

SCHEMA_MEMBERS = 150000
"""The first version that publishes schemas."""
_COLUMNS = """
SELECT attrelid::int8 AS root, attname::text AS name, attnum::int8 AS number, atttypid::int8 AS type
FROM pg_catalog.pg_attribute WHERE attrelid IN ({oids}) AND attnum > 0 AND NOT attisdropped
"""
_PARTS = """
WITH RECURSIVE tree AS (
  SELECT oid AS root, oid FROM pg_catalog.pg_class WHERE oid IN ({oids})
  UNION
  SELECT tree.root, i.inhrelid FROM tree JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid
    JOIN pg_catalog.pg_class p ON p.oid = i.inhparent AND p.relkind = 'p')
SELECT tree.root::int8 AS root, c.oid::int8 AS oid, n.nspname::text AS schema, c.relname::text AS name,
  coalesce(pg_relation_filenode(c.oid), 0)::int8 AS file,
  c.relkind = 'r' AND c.relpersistence = 'p' AS is_logged
FROM tree JOIN pg_catalog.pg_class c ON c.oid = tree.oid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind <> 'p'
"""
_HEIRS = """
SELECT i.inhparent::int8 AS root, n.nspname::text AS schema, c.relname::text AS name
FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class p ON p.oid = i.inhparent AND p.relkind = 'r'
JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE i.inhparent IN ({oids}) ORDER BY 2, 3
"""
_NAMES = """
WITH RECURSIVE types AS (
  SELECT attrelid AS root, attname AS reader, atttypid AS oid FROM pg_catalog.pg_attribute
  WHERE attrelid IN ({oids}) AND attnum > 0 AND NOT attisdropped
  UNION
  SELECT types.root, types.reader, inner_type.oid FROM types JOIN pg_catalog.pg_type t ON t.oid = types.oid
  CROSS JOIN LATERAL (
    SELECT t.typelem AS oid WHERE t.typelem <> 0
    UNION ALL SELECT t.typbasetype WHERE t.typbasetype <> 0
    UNION ALL SELECT r.rngsubtype FROM pg_catalog.pg_range r WHERE r.rngtypid = t.oid
    UNION ALL SELECT a.atttypid FROM pg_catalog.pg_attribute a
      WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped) inner_type)
SELECT types.root::int8 AS root, types.reader::text AS reader, e.oid::text AS number,
  e.enumlabel::text AS name
FROM types JOIN pg_catalog.pg_enum e ON e.enumtypid = types.oid
UNION
SELECT types.root::int8, types.reader::text, t.typrelid || '.' || a.attnum, a.attname::text
FROM types JOIN pg_catalog.pg_type t ON t.oid = types.oid AND t.typtype = 'c'
JOIN pg_catalog.pg_attribute a ON a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
"""
_PUBLICATION = """
SELECT oid::text AS number, xmin::text AS version, puballtables AS has_all
FROM pg_catalog.pg_publication WHERE pubname = {name}
"""
_MEMBERS = """
SELECT prrelid::int8 AS root, oid::text AS number FROM pg_catalog.pg_publication_rel
WHERE prpubid = {publication} AND prrelid IN ({oids})
"""
_SCHEMAS = """
SELECT c.oid::int8 AS root, m.oid::text AS number, c.xmin::text AS version
FROM pg_catalog.pg_publication_namespace m
JOIN pg_catalog.pg_class c ON c.relnamespace = m.pnnspid
WHERE m.pnpubid = {publication} AND c.oid IN ({oids})
"""


@dataclass(frozen=True)
class TableForm:
    """A table as a state has it. What the server numbers is by its number, which stays when it is renamed.

    Attributes:
        columns: the number and the type of each column that is read, by its name; also of those that were
            read and are gone, so that one that comes again is recognised.
        parts: the file of the table, or of each of its partitions; 0 if it is unknown.
        names: labels of enums and attributes of composite types, by their numbers: of the types of `columns`.
        members: the entries of the catalog that make it a part of the publication.
        version: the transaction that changed the publication last. Of a table that is published with its
            schema, also the one that changed the table: it may have been in another schema for a while.
        left_out: the names of the columns that the catalog of the stream did not have when it was first read.
        seen: the names of all its columns.
    """

    columns: Mapping[str, tuple[int, int]]
    parts: Mapping[int, int]
    names: Mapping[str, str]
    members: frozenset[str]
    version: str
    left_out: frozenset[str]
    seen: frozenset[str]

    def to_json(self) -> dict[str, Any]:
        return {
            "columns": {name: list(numbers) for name, numbers in self.columns.items()},
            "parts": {str(oid): file for oid, file in self.parts.items()},
            "names": dict(self.names),
            "members": sorted(self.members),
            "version": self.version,
            "left_out": sorted(self.left_out),
            "seen": sorted(self.seen),
        }

    @classmethod
    def parse(cls, form: Mapping[str, Any]) -> TableForm:
        """Return the form that a state has.

        Raises:
            KeyError, TypeError, ValueError: it is none.
        """
        columns = {str(name): (int(n), int(kind)) for name, (n, kind) in form["columns"].items()}
        parts = {int(oid): int(file) for oid, file in form["parts"].items()}
        names = {str(number): str(name) for number, name in form["names"].items()}
        members, left_out = frozenset(form["members"]), frozenset(form["left_out"])
        seen = frozenset(form["seen"])
        return cls(columns, parts, names, members, str(form["version"]), left_out, seen)

    def list_new_parts(self, before: TableForm) -> list[int]:
        """Return the numbers of the partitions that it had not before."""
        return sorted(self.parts.keys() - before.parts.keys())

    def forget_files(self) -> TableForm:
        """Return the form of a table of which the log has told that its files were replaced."""
        return replace(self, parts=dict.fromkeys(self.parts, 0))


@dataclass(frozen=True)
class CatalogTable:
    """A table in the catalog of the server.

    Attributes:
        columns, parts, names, members, version: as in `TableForm`, of all its columns.
        readers: the numbers in `names` that each column uses, by its name.
        part_names: the quoted names of `parts`.
        unlogged: the quoted names of partitions whose changes no log has.
        heirs: the quoted names of tables that inherit from it and are no partitions.
    """

    columns: Mapping[str, tuple[int, int]]
    parts: Mapping[int, int]
    names: Mapping[str, str]
    members: frozenset[str]
    version: str
    readers: Mapping[str, Sequence[str]]
    part_names: Mapping[int, str]
    unlogged: Sequence[str]
    heirs: Sequence[str]

    def select(self, names: Iterable[str], before: TableForm | None = None) -> TableForm:
        """Return the form of which only the columns of some names are read.

        A column that the table has, and the catalog has not, when the catalog is read for the first time is
        not wanted. One that came later is: its values are counted as not stored, until there is another
        catalog. Files that are others than before are those of before, until a sync has told of them; those
        of which the log has told (`forget_files`) are the present ones.

        Args:
            before: that of the last sync, if there is one.
        """
        columns = {name: self.columns[name] for name in names if name in self.columns}
        labels = {n: self.names[n] for column in columns for n in self.readers.get(column, ())}
        seen, parts = frozenset(self.columns), self.parts
        left_out = seen - columns.keys()
        if before is not None:
            gone = {n: numbers for n, numbers in before.columns.items() if n not in self.columns}
            is_same = before.columns.keys() == columns.keys() | gone.keys()
            left_out = before.left_out if is_same else left_out & before.seen
            parts = {oid: before.parts.get(oid) or file for oid, file in self.parts.items()}
            columns = gone | columns
        return TableForm(columns, parts, labels, self.members, self.version, left_out, seen)

    def list_rewritten(self, before: TableForm) -> list[str]:
        """Return the quoted names of the parts that have another file than before."""
        return sorted(
            self.part_names[oid]
            for oid, file in self.parts.items()
            if before.parts.get(oid, 0) not in (0, file)
        )


def describe_rewritten(parts: Sequence[str]) -> str:
    """Return the warning about parts of a table that have other files, though the log has no TRUNCATE of
    it."""
    return (
        f"{', '.join(parts)} was rewritten, and the log does not tell why. If it was by VACUUM FULL or "
        "CLUSTER, nothing has changed. If a partition was truncated by itself, its rows stay in the lake; "
        f"if ALTER TABLE has changed values of rows, the lake has the former ones: {RESET}"
    )


def read_tables(
    session: Session, relations: Sequence[Relation], publication: str, version: int
) -> dict[int, CatalogTable]:
    """Return tables by their numbers.

    Args:
        version: of the server.
    """
    if not relations:
        return {}
    oids = ", ".join(str(relation.oid) for relation in relations)
    columns, parts, heirs, names = (
        _group_rows(session.rows(query.format(oids=oids)))
        for query in (_COLUMNS, _PARTS, _HEIRS, _NAMES)
    )
    members, versions = _read_members(session, oids, publication, version)
    tables = {}
    for oid in (relation.oid for relation in relations):
        logged = [row for row in parts[oid] if row["is_logged"]]
        readers: defaultdict[str, list[str]] = defaultdict(list)
        for row in names[oid]:
            readers[row["reader"]].append(row["number"])
        tables[oid] = CatalogTable(
            {row["name"]: (row["number"], row["type"]) for row in columns[oid]},
            {row["oid"]: row["file"] for row in logged},
            {row["number"]: row["name"] for row in names[oid]},
            frozenset(members[oid]),
            ".".join(versions[oid]),
            readers=readers,
            part_names={row["oid"]: _quote_row(row) for row in logged},
            unlogged=[_quote_row(row) for row in parts[oid] if not row["is_logged"]],
            heirs=[_quote_row(row) for row in heirs[oid]],
        )
    return tables


def _read_members(
    session: Session, oids: str, publication: str, version: int
) -> tuple[Mapping[int, set[str]], Mapping[int, list[str]]]:
    """Return the entries of each table in a publication, and the transactions that changed it last."""
    members: defaultdict[int, set[str]] = defaultdict(set)
    published = session.rows(_PUBLICATION.format(name=quote_text(publication)))
    versions: defaultdict[int, list[str]] = defaultdict(
        lambda: [entry["version"] for entry in published]
    )
    for entry in published:
        for query in [_MEMBERS, *([_SCHEMAS] if version >= SCHEMA_MEMBERS else [])]:
            for row in session.rows(query.format(publication=entry["number"], oids=oids)):
                members[row["root"]].add(f"{entry['number']}.{row['number']}")
                versions[row["root"]] += [row["version"]] if "version" in row else []
        if entry["has_all"]:
            for oid in oids.split(", "):
                members[int(oid)].add(entry["number"])
    return members, versions


def _group_rows(rows: Iterable[dict[str, Any]]) -> Mapping[int, list[dict[str, Any]]]:
    """Return rows by the table that they describe."""
    grouped: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        grouped[row["root"]].append(row)
    return grouped


def _quote_row(row: Mapping[str, Any]) -> str:
    return quote_name(row["schema"], row["name"])


def compare(before: TableForm, present: TableForm, publication: str) -> Iterator[str]:
    """Yield a warning for each difference of two forms of a table that rows in the lake do not follow.

    Raises:
        ConfigError: rows may be lost, or columns mixed.
    """
    if not before.members & present.members:
        raise ConfigError(
            f"since the last sync the table has left the publication {publication!r} and come again, or the "
            "publication was made again: changes between are not in the log",
            guidance=f"{RESET}; to change what is published, use ALTER PUBLICATION … ADD TABLE",
        )
    common = before.columns.keys() & present.columns.keys()
    made_again = sorted(n for n in common if before.columns[n][0] != present.columns[n][0])
    if made_again:
        raise ConfigError(
            f"the columns {', '.join(made_again)} were dropped and added again, or renamed, since the last "
            "sync: rows in the lake have the values of the former columns",
            guidance=RESET,
        )
    if before.version != present.version:
        yield (
            f"the publication {publication!r}, or a table that is published with its schema, was altered "
            f"since the last sync. If it left out changes meanwhile (`publish`, `SET SCHEMA`), {RESET}"
        )
    gone = before.parts.keys() - present.parts.keys()
    if gone:
        yield (
            f"{len(gone)} of its partitions were detached or dropped: their rows stay in the lake. To remove "
            f"them, {RESET}"
        )
    retyped = sorted(name for name in common if before.columns[name][1] != present.columns[name][1])
    if retyped:
        yield (
            f"the type of the columns {', '.join(retyped)} was changed: rows that were read before have the "
            f"values of the former type. If values differ, {RESET}"
        )
    # Types that no column has any more are left out.
    types = {number.partition(".")[0] for number in present.names}
    renamed = sorted(
        f"{name} (now {present.names.get(number, 'dropped')})"
        for number, name in before.names.items()
        if present.names.get(number) != name and number.partition(".")[0] in types
    )
    if renamed:
        yield (
            f"labels or attributes of its types were renamed: {', '.join(renamed)}. Rows that were read "
            f"before have the former names: {RESET}"
        )
    new = present.columns.keys() - before.columns.keys()
    if new:
        yield (
            f"the columns {', '.join(sorted(new))} are read for the first time: rows that were read before "
            "have null in them, or a former value, until they change. If the server has values there, "
            f"{RESET}"
        )
