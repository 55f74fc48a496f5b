"""Publication of Delta tables in Iceberg: a snapshot of an Iceberg table names the files of a Delta commit.

`pipeline.following` opens a `Publisher` by its name, when a table has a commit, for `elt publish`,
maintenance, erasures, and tables that are moved or removed.

The Delta commit is the only truth; the Iceberg table follows it, in one direction:

1. What is published is the newest Delta version, read from the log. So Iceberg is never ahead, and one
   commit catches up with any number of versions. The property `elt.delta-version` says which one it is.
2. All of it is one commit of the catalog: columns, partition fields, properties and snapshot. It is fenced by
   the snapshot that it was made from, also where no file has changed: then the snapshot has none. Two
   publishers cannot both succeed; the one that loses looks again.
3. Nothing is retried below this module, so a commit is not applied twice. If an answer is lost, the table is
   loaded again: if it has the snapshot, by its id, the commit is there.
4. A table that is not as this module left it is another program's, and is not touched: its snapshot does not
   have the version of the properties, its columns are not those of the snapshot, or its place is another one.

What a kill leaves, so that nothing is lost or doubled:

- ICEBERG_CREATED: a table without a snapshot, with the mark of its Delta table. The next publication goes on.
- SNAPSHOT_WRITTEN: manifests that no catalog names. Maintenance removes them when they are old.
- SNAPSHOT_PUBLISHED: the table is up to date, and an old metadata file is left to maintenance.
- SNAPSHOTS_EXPIRED: as SNAPSHOT_WRITTEN (`expire`).
- ICEBERG_DROPPED: the catalog does not have the table any more; its metadata files are left. `drop` goes on.

Test: `tests/lake/publishing/test_publish_kills.py::test_a_publication_survives_a_kill_at_any_point`
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot as IcebergSnapshot
from pyiceberg.table.update import SetPropertiesUpdate

from elt_assets.errors import ConcurrentSync
from elt_assets.failpoints import Failpoint, reach
from elt_assets.lake.delta import attachments, log, opening
from elt_assets.lake.delta.log import LogEntry
from elt_assets.lake.delta.rules import refuse_moving, spark_schema
from elt_assets.lake.delta.snapshot import Snapshot
from elt_assets.lake.delta.storage import TableStorage
from elt_assets.lake.publish.commits import (
    DELTA_ID,
    VERSION,
    commit,
    is_published_of,
    list_outdated,
    refuse_foreign,
    remove_snapshots,
    root_uri,
    schema_updates,
    snapshot_updates,
)
from elt_assets.lake.publish.connecting import (
    LostMetadata,
    OpenCatalog,
    TakenName,
    explain,
    find_table,
    open_catalog,
    refuse_taken,
)
from elt_assets.lake.publish.data_files import (
    FileChanges,
    FileMaker,
    fingerprint,
    list_files,
    list_paths,
    read_changes,
)
from elt_assets.lake.publish.expiry import expire_snapshots
from elt_assets.lake.publish.followers import (
    Expiry,
    LakeTable,
    Publication,
    refuse_shared_with_branch,
)
from elt_assets.lake.publish.leftovers import FOLDER, remove_metadata, remove_replaced_metadata
from elt_assets.lake.publish.manifests import (
    SnapshotChange,
    UnknownFiles,
    list_live_files,
    write_snapshot,
)
from elt_assets.lake.publish.names import RefusedTable, iceberg_identifier
from elt_assets.lake.publish.schemas import make_name_mapping, make_schema, make_spec
from elt_assets.lake.write.companions import DEAD_LETTER
from elt_assets.machine_faults import first_line
from elt_assets.settings import IcebergSettings, settings
from elt_assets.storage.location import Location

SEQUENCE, STATE = "elt.sequence", "elt.state"
"""Properties: the sequence and the state of the newest commit that is published."""
_ENTRY, _KEY = "elt.delta-entry", "elt.primary-key"
"""Properties: the fingerprint of the entry of the version, and the columns of the key."""
_MAPPING = "schema.name-mapping.default"
_MAX_STATE = 64 << 10
"""Maximum bytes of a state in the properties. The Delta commit has it in any case."""
_ATTEMPTS = 5
_SEARCHED = 100
"""Newest entries of the log in which the commit with the state is looked for."""
_SAFETY_PROPERTIES: Mapping[str, str] = {
    # Other versions of the Delta table need the files: no engine may delete them.
    "gc.enabled": "false",
}
"""Properties that each publication sets, as it sets the mapping of names, without which readers see nulls."""
_NEW_PROPERTIES: Mapping[str, str] = {
    **_SAFETY_PROPERTIES,
    "format-version": "2",
    "commit.retry.num-retries": "0",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
"""Properties of a new table."""
_log = logging.getLogger(__name__)


class Publisher:
    """Publishes tables in the Iceberg catalog of the settings."""

    name = "Iceberg"

    def __init__(self, present: IcebergSettings | None = None):
        self._settings = present or settings().iceberg
        assert self._settings is not None
        self._opened: OpenCatalog | None = None
        self._deltas: dict[str, Snapshot] = {}
        self._publications: dict[str, Publication] = {}

    def publishes(self, table: LakeTable) -> bool:
        """Return whether a table is to be published, by the settings and the connection."""
        assert self._settings is not None
        if table.companion == DEAD_LETTER and not self._settings.dead_letters:
            return False
        return self._settings.tables == "all" if table.iceberg is None else table.iceberg

    def follow(self, table: LakeTable) -> None:
        """Publish the newest version of a table; do nothing if it is published, or is not to be.

        Raises:
            EltError: it could not be published; the Delta table and what is published are as before.
        """
        if self.publishes(table):
            self.publish(table)

    def metadata(self, table: LakeTable) -> Mapping[str, Any]:
        publication = self._publications.get(table.location.uri)
        if publication is None:
            return {}
        return {
            "elt/iceberg_snapshot": str(publication.snapshot),
            "elt/iceberg_lag": publication.lag,
        }

    def publish(self, table: LakeTable, *, replace: bool = False) -> Publication | None:
        """Publish the newest version of a table.

        Args:
            replace: start a new Iceberg table, whatever has the name.

        Returns:
            what is published; None if there is no Delta table.

        Raises:
            EltError: as `follow`.
        """
        delta = self._read_delta(table.location)
        if delta is None:
            return None
        with self._explain_errors(table, delta):
            if replace:
                self._drop_any(table)
            for _ in range(_ATTEMPTS):
                try:
                    published = self._publish_once(table, delta)
                except (CommitFailedException, TableAlreadyExistsError):
                    delta.update_incremental()  # another publisher was first: look again
                    continue
                self._publications[table.location.uri] = published
                return published
        raise ConcurrentSync(
            f"others changed the Iceberg table of {table.name} {_ATTEMPTS} times while it was published",
            guidance="the next sync, or `elt publish`, catches up",
        )

    def look(self, table: LakeTable) -> Publication | None:
        """Return what is published of a table, without a change; None if nothing is.

        Raises:
            EltError: the catalog cannot be asked, or the Iceberg table is another program's.
        """
        delta, iceberg = self._read_delta(table.location), self.load(table)
        if delta is None or iceberg is None or iceberg.current_snapshot() is None:
            return None
        return _describe(iceberg, int(delta.version()))

    def drop(self, table: LakeTable) -> bool:
        """Remove a table from the catalog, and its Iceberg metadata; its data files stay.

        Returns:
            whether the catalog had it, and not another table by its name.

        Raises:
            EltError: the catalog cannot be asked, or another program has changed the Iceberg table.
        """
        with self._explain_errors(table):
            try:
                iceberg = self._load(table)
            except (RefusedTable, TakenName):  # so nothing is published
                return False
            if iceberg is None or not is_published_of(iceberg, table):
                return False
            refuse_foreign(iceberg, table)
            self._remove(table, iceberg)
            return True

    def expire(self, table: LakeTable, retention: dt.timedelta) -> Expiry:
        """Publish a table, and remove its snapshots that a vacuum with a retention would break.

        Raises:
            EltError: it could not be done; the table must not be vacuumed.
        """
        if not self.publishes(table) or self.publish(table) is None:
            return Expiry()
        iceberg, delta = self.load(table), self._read_delta(table.location)
        assert iceberg is not None and delta is not None
        with self._explain_errors(table):
            return expire_snapshots(iceberg, delta, retention)

    def identifier(self, table: LakeTable) -> tuple[str, ...]:
        """Return the name of a table in the catalog: the levels of its namespace, and its own.

        Raises:
            ConfigError: the catalog refuses the name.
        """
        assert self._settings is not None
        kind, template = self._open(table).kind, self._settings.namespace
        return iceberg_identifier(kind, template, table.connection, table.levels)

    def load(self, table: LakeTable) -> Table | None:
        """Return the Iceberg table that is published of a table; None if there is none.

        Raises:
            EltError: as `look`.
        """
        with self._explain_errors(table):
            iceberg = self._load(table)
            if iceberg is not None:
                refuse_foreign(iceberg, table)
            return iceberg

    def _open(self, table: LakeTable) -> OpenCatalog:
        if self._opened is None:
            refuse_shared_with_branch(
                "iceberg", 'with another `catalog`, or with `tables = "none"`'
            )
            assert self._settings is not None
            self._opened = open_catalog(self._settings, table.location)
        return self._opened

    def _load(self, table: LakeTable) -> Table | None:
        return find_table(self._open(table), self.identifier(table), table.connection)

    def _read_delta(self, location: Location) -> Snapshot | None:
        """Return the newest version of a Delta table; None if there is none."""
        delta = self._deltas.get(location.uri)
        if delta is not None:
            delta.update_incremental()
            opening.refuse_unusable(delta)
        else:
            delta = opening.open_table(location)
        if delta is not None:
            refuse_moving(delta)
            self._deltas[location.uri] = delta
        return delta

    def _publish_once(self, table: LakeTable, delta: Snapshot) -> Publication:
        iceberg = self._load(table)
        version = int(delta.version())
        if iceberg is None:
            iceberg = self._create(table, delta)
        refuse_foreign(iceberg, table)
        entry = log.read(delta.storage, version)
        if entry is None:
            delta.update_incremental()
            if int(delta.version()) > version:
                raise CommitFailedException(f"an erasure removed version {version} meanwhile")
            raise log.damage(delta.storage, version, "is lost")
        published, properties = iceberg.current_snapshot(), iceberg.properties
        changed = [] if published is None else _list_changed_properties(iceberg)
        if changed:
            _log.warning(
                "The Iceberg table %s has other values of %s than were published: they are set again",
                ".".join(iceberg.name()),
                ", ".join(changed),
            )
        is_known = properties.get(_ENTRY) == fingerprint(entry)
        is_known = is_known and properties.get(VERSION) == str(version)
        if published is not None and is_known and not changed:
            return _describe(iceberg, version)
        columns = spark_schema(delta)
        schema = make_schema(columns, iceberg.metadata, table.texts)
        spec = make_spec(schema, delta.metadata().partition_columns, iceberg.metadata)
        snapshot = self._write(delta, entry, iceberg, (schema, spec))
        outdated = list_outdated(iceberg, schema)
        reach(Failpoint.SNAPSHOT_WRITTEN)
        updates = (
            *schema_updates(iceberg, schema, spec),
            SetPropertiesUpdate(updates=_make_properties(table, delta, entry, schema)),
            *snapshot_updates(snapshot),
            *([remove_snapshots(outdated)] if outdated else []),
        )
        after = commit(iceberg, updates, snapshot.snapshot_id)
        reach(Failpoint.SNAPSHOT_PUBLISHED)
        remove_replaced_metadata(iceberg, after)
        return Publication(snapshot.snapshot_id, version)

    def _create(self, table: LakeTable, delta: Snapshot) -> Table:
        """Create the Iceberg table, without a snapshot."""
        catalog, identifier = self._open(table).catalog, self.identifier(table)
        for depth in range(1, len(identifier)):
            _create_namespace(catalog, identifier[:depth])
        root = root_uri(table.location)
        schema = make_schema(spark_schema(delta), None, table.texts)
        try:
            created = catalog.create_table(
                identifier,
                schema,
                location=root,
                partition_spec=make_spec(schema, delta.metadata().partition_columns, None),
                properties={
                    **_NEW_PROPERTIES,
                    "write.metadata.path": f"{root}/{FOLDER}",
                    DELTA_ID: delta.metadata().id,
                },
            )
        except TableAlreadyExistsError as error:
            if self._load(table) is None:
                raise refuse_taken(".".join(identifier), first_line(error)) from None
            raise  # another publisher was first
        reach(Failpoint.ICEBERG_CREATED)
        return created

    def _write(
        self,
        delta: Snapshot,
        entry: LogEntry,
        iceberg: Table,
        columns: tuple[Schema, PartitionSpec],
    ) -> IcebergSnapshot:
        """Write the snapshot of a Delta version."""
        schema, spec = columns
        root, properties = root_uri(delta.storage.location), {VERSION: str(entry.version)}
        make = FileMaker(delta.storage, root, schema, spec).make
        changes = _read_changes(delta, entry, iceberg)
        if changes is not None:
            removed = {f"{root}/{path}" for path in changes.removed}
            change = SnapshotChange(map(make, changes.added), removed, properties)
            try:
                return write_snapshot(iceberg, schema, spec, change)
            except UnknownFiles as error:
                _log.warning(
                    "The Iceberg table %s lacks %s of its Delta table: both lists of files are compared",
                    ".".join(iceberg.name()),
                    error,
                )
        present = list_live_files(iceberg)
        new = (f for f in list_files(delta) if f"{root}/{f.path}" not in present)
        removed = present - {f"{root}/{path}" for path in list_paths(delta)}
        return write_snapshot(
            iceberg, schema, spec, SnapshotChange(map(make, new), removed, properties)
        )

    def _drop_any(self, table: LakeTable) -> None:
        """Remove whatever has the table's name from the catalog."""
        try:
            self._remove(table, self._load(table))
        except LostMetadata:
            self._open(table).catalog.drop_table(self.identifier(table))

    def _remove(self, table: LakeTable, iceberg: Table | None) -> None:
        """Remove a table from the catalog, and what it has in the folder of its metadata."""
        if iceberg is not None:
            iceberg.catalog.drop_table(iceberg.name())
            reach(Failpoint.ICEBERG_DROPPED)
            remove_metadata(iceberg, TableStorage(table.location), set())
        self._publications.pop(table.location.uri, None)

    @contextlib.contextmanager
    def _explain_errors(self, table: LakeTable, delta: Snapshot | None = None) -> Iterator[None]:
        """Context that raises an error of the catalog as one that says what to do."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - of any catalog
            former = self._publications.get(table.location.uri)
            if former is not None and delta is not None:
                lag = max(0, int(delta.version()) - former.version)
                self._publications[table.location.uri] = replace(former, lag=lag)
            mask = str if self._opened is None else self._opened.mask
            self._opened = None  # credentials may have expired: the next call reads them again
            raise explain(error, f"the table {table.name} was published", mask) from None


def _create_namespace(catalog: Catalog, name: tuple[str, ...]) -> None:
    """Create a namespace if there is none, also if another publisher creates it in the same moment: a catalog
    in a database then fails by an error of the database."""
    try:
        catalog.create_namespace_if_not_exists(name)
    except Exception:
        if not catalog.namespace_exists(name):
            raise


def _read_changes(delta: Snapshot, entry: LogEntry, iceberg: Table) -> FileChanges | None:
    """Return the changes since what is published; None if both lists of files must be compared."""
    properties = iceberg.properties
    if iceberg.current_snapshot() is None or properties[DELTA_ID] != delta.metadata().id:
        return None
    return read_changes(delta.storage, int(properties[VERSION]), properties[_ENTRY], entry)


def _read_state(delta: Snapshot) -> dict[str, str]:
    """Return the properties of the newest commit of this project; none if it is not among the newest."""
    for entry in islice(log.read_newest_first(delta), _SEARCHED):
        if "elt.sequence" not in entry:
            continue
        attached = attachments.read(delta.storage, entry).get("elt.state")
        state = entry.get("elt.state", "") if attached is None else attached.value
        if len(state.encode()) > _MAX_STATE:
            state = json.dumps({"elt/too_large": "see elt.state in the table's last Delta commit"})
        return {SEQUENCE: str(entry["elt.sequence"]), STATE: state}
    return {}


def _describe(iceberg: Table, version: int) -> Publication:
    snapshot = iceberg.current_snapshot()
    assert snapshot is not None
    published = int(iceberg.properties[VERSION])
    return Publication(snapshot.snapshot_id, published, max(0, version - published))


def _list_changed_properties(iceberg: Table) -> list[str]:
    """Return the properties, of those that readers and the files depend on, that another program changed."""
    own_properties = {_MAPPING: make_name_mapping(iceberg.schema()), **_SAFETY_PROPERTIES}
    return [name for name, value in own_properties.items() if iceberg.properties.get(name) != value]


def _make_properties(
    table: LakeTable, delta: Snapshot, entry: LogEntry, schema: Schema
) -> dict[str, str]:
    """Return the properties of the Iceberg table of a Delta version."""
    return {
        VERSION: str(entry.version),
        _ENTRY: fingerprint(entry),
        DELTA_ID: delta.metadata().id,
        _MAPPING: make_name_mapping(schema),
        **_SAFETY_PROPERTIES,
        **_read_state(delta),
        **(
            {_KEY: json.dumps(list(texts.key)), "comment": texts.comment or ""}
            if (texts := table.texts) is not None
            else {}
        ),
    }
