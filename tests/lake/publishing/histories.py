"""Whatever happens to a table, what is published of it is right, and after the next publication current.

`Published` adds publications to the machine of `tests/lake/erasing.py`: after commits, killed at any
failpoint, before vacuums, and within erasures. `make_catalog` gives the settings of the catalog:
`test_publish_histories` publishes in a database, and others may publish elsewhere.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from elt_assets.lake.admin.maintenance import maintain
from elt_assets.lake.admin.vacuum_mark import RETENTION
from elt_assets.lake.delta.table import Table
from elt_assets.lake.publish.followers import LakeTable, TableTexts
from elt_assets.lake.publish.iceberg import Publisher
from elt_assets.lake.write.companions import HISTORY, StreamTables
from elt_assets.settings import IcebergSettings
from elt_assets.storage.location import Location
from tests.lake.erasing import Erasing, Request
from tests.lake.modelled import KILLS, STEPS
from tests.lake.publishing import oracle
from tests.lake.staging import APP

TEXTS = TableTexts("People", {"id": "Their number", "text": "What they say"}, ("id",))


class Published(Erasing):
    """A machine whose table and history are published."""

    make_catalog: ClassVar[Any] = staticmethod(oracle.sqlite_settings)

    def __init__(self) -> None:
        super().__init__()
        settings: IcebergSettings = self.make_catalog(Path(self.folder) / "catalog")
        self.publisher = Publisher(settings)
        self.checked_versions: dict[str, tuple[int, int]] = {}

    def tables(self) -> Iterator[LakeTable]:
        """The tables that exist and are whole."""
        tables = StreamTables(self.uri, APP, history=self.world.history)
        for kind, table in ((None, tables.main), (HISTORY, tables.history)):
            if table is not None and table.exists:
                yield self._lake_table(table, kind)

    @staticmethod
    def _lake_table(table: Table, kind: str | None) -> LakeTable:
        levels = ("shop", table.uri.rsplit("/", 1)[1])
        return LakeTable(Location(table.uri), "shop", levels, kind, None if kind else TEXTS)

    @rule(kill=KILLS)
    def publish(self, kill: Any) -> None:
        STEPS["publish"] += 1
        with self._killed(kill):
            for table in self.tables():
                self.publisher.publish(table)

    @rule(shares=st.booleans())
    def publish_and_be_current(self, shares: bool) -> None:
        """The next publication, of this process or another, brings everything up to date."""
        STEPS["publish all"] += 1
        if not shares:
            self.publisher = Publisher(self.make_catalog(Path(self.folder) / "catalog"))
        for table in self.tables():
            self.publisher.publish(table)
            oracle.check_current(self.publisher, table)

    def _maintain(self, kill: Any) -> None:
        self.is_vacuumed = True
        self.publisher = Publisher(self.make_catalog(Path(self.folder) / "catalog"))
        lake_tables = {table.location.uri: table for table in self.tables()}

        def prepare(table: Table, _kind: str | None) -> Sequence[str] | None:
            lake_table = lake_tables.get(table.uri)
            return (
                ()
                if lake_table is None
                else self.publisher.expire(lake_table, RETENTION).other_folders
            )

        with self._killed(kill):
            tables = StreamTables(self.uri, APP, history=self.world.history)
            maintain(self.world.provider.get(), tables, prepare=prepare)

    # Erasures

    def _expire(self, table: Table, kind: str | None) -> bool:
        lake_table = self._lake_table(table, kind)
        if not self.publisher.publishes(lake_table):
            return False
        self.publisher.expire(lake_table, dt.timedelta(0))
        return True

    def _erase(self, request: Request, kill: Any, beside: tuple[int, int] | None) -> bool:
        """Erase as another process; then all is published, without the rows."""
        self.publisher = Publisher(self.make_catalog(Path(self.folder) / "catalog"))
        is_done = super()._erase(request, kill, beside)
        self.checked_versions.clear()
        return is_done

    def _publish_all(self) -> None:
        self.publish_and_be_current(False)

    @invariant()
    def what_is_published_is_right(self) -> None:
        """The published snapshot equals the Delta table at its version, and no file of it is gone."""
        for table in self.tables():
            iceberg = oracle.load(self.publisher, table)
            snapshot = None if iceberg is None else iceberg.current_snapshot()
            if snapshot is None:
                continue
            versions = Table(table.location, APP).version, snapshot.snapshot_id
            if versions == self.checked_versions.get(table.location.uri) and not self.is_vacuumed:
                continue
            self.checked_versions[table.location.uri] = versions
            oracle.check(self.publisher, table)
            oracle.check_files(self.publisher, table)
