"""The rule by which a Delta table has an entry in a catalog: what should be there, what is there, the change.

`entries` follows the commits of tables with it; `glue`, `hive` and `unity` are the catalogs.

An entry is a name in a database, with the place of a table, its columns and its comment. Engines read rows
and columns from the table's log at that place, so an entry that is late shows no wrong rows: it is a name by
which people and engines find the table. The table's commit never waits for it and never depends on it.

Why the entry equals the table after the next try, whatever happened before: nothing is remembered. Each try
looks at the entry, and makes only the change from what it is to what it should be. A change whose answer is
lost is looked up in the same way (`register`, `unregister`), and one that was killed half-way is what the
next try looks at. Why entries of others stay: a change is made only to an entry that `is_own` accepts, which
needs the place of the table, and where a catalog keeps properties also the mark that `create` wrote.
`tests/lake/publishing/test_registration.py::test_any_history_ends_with_the_entries_that_should_be_there`
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

from pyspark.sql import types as t

from elt_assets.errors import ConfigError, TransientError

T = TypeVar("T")

MARK = "elt.table"
"""The property of an entry that says that this project made it; its value is the table's path in the lake."""
COMMENT = "comment"
"""The key of a column's metadata that has its comment, as in Spark and in Delta."""
CONNECT_SECONDS, REQUEST_SECONDS = 5, 20
"""How long a catalog may take to accept a connection, and to answer a request."""
_SAME_SCHEMES = {"s3a": "s3", "s3n": "s3", "abfs": "abfss", "file": ""}
"""Schemes of URIs that name the same store as others."""


@dataclass(frozen=True)
class EntryName:
    """The name of an entry in a catalog."""

    database: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


@dataclass(frozen=True)
class Registration:
    """A table as its entry should show it."""

    name: EntryName
    location: str
    """The URI of the table's root, as the catalog writes it."""
    schema: t.StructType
    path: str
    """The path of the table below the root of the lake, the value of the mark."""
    partition_by: tuple[str, ...] = ()
    comment: str = ""
    keeps_comments: bool = False
    """Whether the comments of the entry stay: where the table is looked at, they are not known."""

    @property
    def root(self) -> str:
        """The URI of the lake's root."""
        return self.location.removesuffix(f"/{self.path}")


@dataclass(frozen=True)
class Entry:
    """An entry as a catalog has it."""

    name: EntryName
    location: str
    """Empty if it has none, like a view."""
    is_external: bool
    """Whether its removal leaves the files of the table."""
    is_marked: bool
    """Whether this project made it: see `MARK`."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What it shows, in the form of `Catalog.facts_of`."""
    native: Any = None
    """The entry in the form of the catalog's library."""


class EntryExists(TransientError):
    """An entry that was to be created exists: it was made in the meantime, or by a lost request."""


class Unreachable(TransientError):
    """A catalog does not answer, or not in time."""


class Catalog(Protocol):
    """A catalog of tables. Its methods raise a TransientError if the outcome is unknown, or may change."""

    kind: str
    """The name of the kind of catalog, for messages."""

    def find(self, name: EntryName) -> Entry | None:
        """Return the entry of a name; None if there is none, or no such database."""

    def facts_of(self, registration: Registration) -> Mapping[str, Any]:
        """Return what the entry of a table should show, in a form that compares with `Entry.facts`."""

    def create(self, registration: Registration) -> None:
        """Create an entry, and its database if there is none; raises EntryExists."""

    def update(self, registration: Registration, entry: Entry) -> None:
        """Change an entry of this project into what it should be; the properties of others stay."""

    def remove(self, entry: Entry) -> None:
        """Remove an entry, and no file of the table. It is no error if there is none any more."""


class Outcome(Enum):
    """What `register` did."""

    UNCHANGED = "is registered"
    CREATED = "was registered"
    UPDATED = "was brought up to date"
    REPLACED = "replaced another entry"


def register(catalog: Catalog, registration: Registration, *, replace: bool = False) -> Outcome:
    """Make the entry of a table what it should be.

    Args:
        replace: an entry of the same name that is not this project's is removed first, if it is external.

    Raises:
        ConfigError: an entry of this name is not this project's, or the catalog refuses the entry.
        TransientError: the catalog cannot be reached, or is busy.
    """
    outcome = Outcome.UNCHANGED

    def change() -> Outcome:
        nonlocal outcome
        entry = catalog.find(registration.name)
        if entry is not None and not is_own(entry, registration.location):
            _refuse_other(catalog, entry, registration, replace=replace)
            outcome = Outcome.REPLACED
            catalog.remove(entry)
            entry = None
        if entry is None:
            if outcome is Outcome.UNCHANGED:
                outcome = Outcome.CREATED
            catalog.create(registration)
            return outcome
        complete = _take_comments(registration, entry)
        if differences(catalog, complete, entry):
            outcome = Outcome.UPDATED if outcome is Outcome.UNCHANGED else outcome
            catalog.update(complete, entry)
        return outcome

    return _try_twice(change)


def look_up(catalog: Catalog, registration: Registration) -> str | None:
    """Return in what the entry of a table is not what it should be, without a change; None if in nothing.

    Raises:
        EltError: the catalog cannot be asked.
    """
    entry = catalog.find(registration.name)
    if entry is None:
        return f"{catalog.kind} has no entry {registration.name}; `elt publish` makes it"
    if not is_own(entry, registration.location):
        return f"the entry {entry.name} in {catalog.kind} {_describe_other(entry, registration)}"
    different = differences(catalog, _take_comments(registration, entry), entry)
    if not different:
        return None
    return (
        f"the entry {entry.name} in {catalog.kind} shows another state of the table; `elt publish` brings it "
        f"up to date: {', '.join(different)}"
    )


def unregister(catalog: Catalog, name: EntryName, location: str) -> bool:
    """Remove the entry of a table that is no longer there, or has another name. Entries of others stay.

    Returns:
        Whether there was an entry of this project.

    Raises:
        ConfigError: the catalog refuses.
        TransientError: the catalog cannot be reached, or is busy.
    """
    removed = False

    def change() -> bool:
        nonlocal removed
        entry = catalog.find(name)
        if entry is not None and is_own(entry, location):
            removed = True
            catalog.remove(entry)
        return removed

    return _try_twice(change)


def _try_twice(change: Callable[[], T]) -> T:
    """Return the result of a change that begins with a look; if its outcome is unknown, of a second one."""
    try:
        return change()
    except TransientError:
        return change()


def differences(catalog: Catalog, registration: Registration, entry: Entry) -> list[str]:
    """Return the names of the facts in which an entry is not what it should be."""
    facts = catalog.facts_of(registration)
    return sorted(
        name for name in {*facts, *entry.facts} if facts.get(name) != entry.facts.get(name)
    )


def is_own(entry: Entry, location: str) -> bool:
    """Return whether an entry is this project's entry of the table at a location."""
    return entry.is_marked and same_place(entry.location, location)


def same_place(uri: str, other: str) -> bool:
    """Return whether two URIs or paths name the same folder."""
    return _comparable(uri) == _comparable(other)


def _comparable(uri: str) -> str:
    scheme, separator, rest = uri.partition(":")
    if not separator or "/" in scheme:
        return uri.rstrip("/")
    scheme = _SAME_SCHEMES.get(scheme.lower(), scheme.lower())
    if not scheme:  # a path: file:/x, file:///x
        return f"/{urlsplit(uri).path.strip('/')}"
    return f"{scheme}:{rest.rstrip('/')}"


def _take_comments(registration: Registration, entry: Entry) -> Registration:
    """Return a registration with the comments of the entry, if they are to stay."""
    if not registration.keeps_comments:
        return registration
    comments = {name: comment for name, _, comment, *_ in entry.facts["columns"] if comment}
    return dataclasses.replace(
        registration,
        schema=fill_comments(registration.schema, comments),
        comment=entry.facts["comment"],
    )


def fill_comments(schema: t.StructType, comments: Mapping[str, str]) -> t.StructType:
    """Return columns in which those without a comment get theirs, by names of any case."""
    by_name = {name.lower(): comment for name, comment in comments.items()}

    def fill(column: t.StructField) -> t.StructField:
        metadata = {COMMENT: by_name[column.name.lower()], **(column.metadata or {})}
        return t.StructField(column.name, column.dataType, column.nullable, metadata)

    return t.StructType(
        [fill(column) if column.name.lower() in by_name else column for column in schema]
    )


def remove_comments(schema: t.StructType) -> t.StructType:
    """Return columns without comments."""

    def remove(column: t.StructField) -> t.StructField:
        metadata = {k: v for k, v in (column.metadata or {}).items() if k != COMMENT}
        return t.StructField(column.name, column.dataType, column.nullable, metadata)

    return t.StructType([remove(column) for column in schema])


def _refuse_other(
    catalog: Catalog, entry: Entry, registration: Registration, *, replace: bool
) -> None:
    """Refuse to change an entry that is not this project's, unless it is to be replaced and can be.

    Raises:
        ConfigError: names the entry, its place and the way out.
    """
    if replace and entry.is_external:
        return
    way = (
        f"`elt publish CONNECTION STREAM --replace` replaces it by the table {registration.location}"
        if entry.is_external
        else "remove it with the engine that made it"
    )
    raise ConfigError(
        f"the entry {entry.name} in {catalog.kind} {_describe_other(entry, registration)}; it "
        "was not changed",
        guidance=f"{way}; or write another `database` in [tool.elt.catalog], or another `table` for the "
        "stream",
    )


def _describe_other(entry: Entry, registration: Registration) -> str:
    """Return what an entry is that is not this project's."""
    if not entry.is_external:
        return "is a view, or a table whose files the catalog owns"
    if same_place(entry.location, registration.location):
        return "names this table, but was not made here"
    return f"is a table at another place, {entry.location}"


def unreachable(kind: str, place: str, reason: object) -> Unreachable:
    """Return the error for a catalog that does not answer, or not in time."""
    return Unreachable(
        f"{kind} at {place} cannot be reached: {reason}",
        guidance="check the network, and the place in [tool.elt.catalog]; the next sync tries again, and so "
        "does `elt publish`",
    )
