"""The follower that registers the lake's Delta tables by name, in the catalog of `[tool.elt.catalog]`.

`pipeline.following` opens it by `open_entries`; `entry_name` says how a table is called there.

Where the entry of a table is, and what it shows, follows from the table alone: its place, its columns, and
the names of its connection and of itself. So nothing is stored about it, and any process may write it. A
table that is moved loses its entry first (`drop`): a kill in between leaves a table without one, which the
next sync, or the next call of the command that moves it, registers.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from elt_assets.errors import ConfigError
from elt_assets.lake.delta import opening
from elt_assets.lake.delta.rules import spark_schema
from elt_assets.lake.publish.followers import (
    LakeTable,
    TableTexts,
    refuse_shared_with_branch,
)
from elt_assets.lake.publish.glue import GlueCatalog
from elt_assets.lake.publish.hive import HiveCatalog
from elt_assets.lake.publish.names import RefusedTable, catalog_name, namespace_levels
from elt_assets.lake.publish.registration import (
    Catalog,
    EntryName,
    Outcome,
    Registration,
    Unreachable,
    fill_comments,
    look_up,
    register,
    remove_comments,
    unregister,
)
from elt_assets.lake.publish.unity import UnityCatalog
from elt_assets.lake.write.companions import DEAD_LETTER
from elt_assets.runner.references import Reference
from elt_assets.settings import (
    CatalogSettings,
    GlueSettings,
    HiveSettings,
    settings,
)
from elt_assets.storage.location import Location

ENTRY = "elt/catalog_entry"
"""The key of an event's metadata that has the name of the table's entry, once it is registered."""
_PAUSE = 60.0
"""How long a process does not ask a catalog again that it could not reach, in seconds."""
_WHERE = "[tool.elt.catalog]"


def open_entries() -> CatalogEntries:
    """Return the follower of the project's settings.

    Raises:
        ConfigError: a reference has no value, a library is missing, or a branch has no catalog of its own.
    """
    present = settings().entry_catalog
    if present is None:
        raise ConfigError(f"the project has no {_WHERE}", guidance="write it, with its `type`")
    refuse_shared_with_branch("catalog", 'with another `database`, or with `type = "none"`')
    return CatalogEntries(present, _open_catalog(present))


def entry_name(catalog: CatalogSettings, table: LakeTable) -> EntryName | None:
    """Return the name of a table's entry; None if tables of its kind have no entry.

    Raises:
        ConfigError: the catalog refuses the name.
    """
    if table.companion == DEAD_LETTER and not catalog.dead_letters:
        return None
    what = f"the table {table.name}"
    *above, name = table.levels
    levels = namespace_levels(catalog.type, catalog.database, table.connection, above, what)
    return EntryName(levels[0], catalog_name(catalog.type, name, what))


class CatalogEntries:
    """The entries of a project's tables in its catalog."""

    def __init__(self, present: CatalogSettings, catalog: Catalog):
        self.name = catalog.kind
        self._settings = present
        self._catalog = catalog
        self._registered: dict[str, Registration] = {}
        self._failure: tuple[float, Unreachable] | None = None

    def follow(self, table: LakeTable) -> None:
        self.register(table)

    def register(self, table: LakeTable, *, replace: bool = False) -> Outcome | None:
        """Make the entry of a table what it should be, unless this follower has made it so before.

        Returns:
            What was done; None if there is no table, or none that has an entry.

        Raises:
            EltError: see `registration.register`.
        """
        registration = self._describe(table)
        if registration is None:
            return None
        if self._registered.get(table.location.uri) == registration:
            return Outcome.UNCHANGED
        self._refuse_unreachable()
        try:
            outcome = register(self._catalog, registration, replace=replace)
        except Unreachable as error:
            self._failure = time.monotonic(), error
            raise
        self._registered[table.location.uri] = registration
        return outcome

    def look(self, table: LakeTable) -> str | None:
        """Return in what the entry of a table is not what it should be, without a change; None if in nothing.

        Raises:
            EltError: the catalog cannot be asked.
        """
        registration = self._describe(table)
        if registration is None:
            return None
        self._refuse_unreachable()
        try:
            problem = look_up(self._catalog, registration)
        except Unreachable as error:
            self._failure = time.monotonic(), error
            raise
        return problem

    def drop(self, table: LakeTable) -> bool:
        try:
            # A dead letter may have an entry of a time when dead letters were registered.
            name = entry_name(self._settings, replace(table, companion=None))
            place = self._place(table.location)
        except RefusedTable:
            return False
        self._registered.pop(table.location.uri, None)
        return name is not None and unregister(self._catalog, name, place)

    def metadata(self, table: LakeTable) -> Mapping[str, Any]:
        registration = self._registered.get(table.location.uri)
        return {} if registration is None else {ENTRY: str(registration.name)}

    def _describe(self, table: LakeTable) -> Registration | None:
        name = entry_name(self._settings, table)
        snapshot = None if name is None else opening.open_table(table.location)
        if name is None or snapshot is None:
            return None
        texts, shows_comments = table.texts or TableTexts(), self._settings.comments
        schema = spark_schema(snapshot)
        return Registration(
            name,
            self._place(table.location),
            fill_comments(schema, texts.columns) if shows_comments else remove_comments(schema),
            "/".join(table.levels),
            tuple(snapshot.metadata().partition_columns),
            texts.comment or "" if shows_comments else "",
            keeps_comments=shows_comments and table.texts is None,
        )

    def _place(self, location: Location) -> str:
        """Return the URI of a table as the catalog's engines expect it."""
        uri = location.for_spark
        if isinstance(self._settings, HiveSettings) and location.scheme == "s3":
            return f"{self._settings.s3_scheme}{uri.removeprefix('s3')}"
        if isinstance(self._settings, GlueSettings) and location.scheme != "s3":
            raise RefusedTable(
                f"Glue is a catalog of tables in S3, and the table is at {location}",
                guidance="set a `lake` in S3, or another `type` in [tool.elt.catalog]",
            )
        return uri

    def _refuse_unreachable(self) -> None:
        """Refuse to wait for a catalog that did not answer a moment ago: a read may have many tables."""
        if self._failure is not None and time.monotonic() - self._failure[0] < _PAUSE:
            raise self._failure[1]


def _open_catalog(present: CatalogSettings) -> Catalog:
    if isinstance(present, GlueSettings):
        own = {"type", "database", "dead_letters", "comments"}
        options = present.model_dump(exclude=own, exclude_none=True)
        return GlueCatalog({name: _resolve(value, name) for name, value in options.items()})
    if isinstance(present, HiveSettings):
        return HiveCatalog(_resolve(present.uri, "uri"))
    token = present.token
    return UnityCatalog(
        _resolve(present.url, "url"),
        present.catalog,
        lambda: None if token is None else _resolve(token, "token"),
        replace_entries=present.replace_entries,
    )


def _resolve(value: Any, key: str) -> str:
    """Return the value of a setting, which may be a reference."""
    reference = Reference.parse(value)
    if reference is None:
        return str(value)
    content, _ = reference.read(f"{_WHERE} {key}")
    return content if isinstance(content, str) else json.dumps(content)
