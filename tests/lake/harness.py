"""A lake of a test's own: each sync opens its tables and writers again, as each run does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from elt_assets.lake.delta.table import Table
from elt_assets.lake.session import SparkProvider
from elt_assets.lake.write.companions import StreamTables
from elt_assets.lake.write.sync_columns import WriteSpec
from elt_assets.lake.write.writer import TableWriter
from elt_assets.protocol.catalog import ConfiguredStream
from elt_assets.storage.staging import IN_PLACE, Staging
from elt_assets.sync.events import Committed
from elt_assets.sync.segments import Segment
from tests.lake.staging import APP, INTEGER, STRING, checkpoint, rows, stage, stream

USERS = {"id": INTEGER, "name": STRING}


@dataclass
class Lake:
    """`history`, `on_schema_change`, `partition`, `salt`: as the stream's `WriteSpec` has them.

    `root`: the URI of the lake; default: `folder`. `staging`: where tasks read segments. `is_plain`: it
    is used without Spark, in the context of `plain.without_spark`.
    """

    provider: SparkProvider
    folder: Path
    history: bool = False
    root: str | None = None
    staging: Staging = IN_PLACE
    is_plain: bool = False
    partition_by: Sequence[str] = ()

    @property
    def scratch(self) -> Staging:
        """The staging of replays."""
        return Staging(self.folder / "staging")

    @property
    def spark(self) -> SparkSession:
        return self.provider.get()

    @property
    def uri(self) -> str:
        return str(self.folder / "users") if self.root is None else f"{self.root}/users"

    def tables(self, app_id: str = APP) -> StreamTables:
        return StreamTables(self.uri, app_id, history=self.history, partition_by=self.partition_by)

    @property
    def table(self) -> Table:
        return self.tables().main

    @property
    def dead_letter(self) -> Table:
        return self.tables().dead_letter

    def writer(self, configured: ConfiguredStream | None = None, **landing: Any) -> TableWriter:
        """Open the tables as a run does: companions are rolled back to the commit that the table names."""
        partition = landing.get("partition")
        tables = self.tables(APP if partition is None else f"{APP}|{partition}")
        tables.roll_back_companions("run-1")
        spec = WriteSpec(configured or stream(USERS), "run-1", self.history, **landing)
        return TableWriter(self.provider, tables, spec, self.staging)

    def stage(self, *data: Any) -> Segment:
        return stage(self.folder / "staging", data)

    def sync(
        self, configured: ConfiguredStream, *data: Any, value: Any = None, **landing: Any
    ) -> Committed:
        """A whole sync of some records with one commit."""
        writer = self.writer(configured, **landing)
        writer.write(self.stage(*data))
        return writer.commit(checkpoint(value, final=True))

    def ids(self) -> list[int]:
        return [number for (number,) in rows(self.spark, self.table, "id")]

    def versions(self, *names: str) -> list[tuple[Any, ...]]:
        """Some columns of the history, sorted."""
        return rows(self.spark, self.tables().companions["history"], *names)


def user(number: Any, **fields: Any) -> dict[str, Any]:
    return {"id": number, "name": f"user {number}", **fields}
