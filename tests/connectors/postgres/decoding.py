"""Messages of a slot, decoded in batches of any size, and what they make of tables."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from connectors.cdc.changes import ChangeFiles
from connectors.cdc.reader import ReadScope
from connectors.postgres.config import PostgresConfig
from connectors.postgres.log.changes import MessageWriter
from connectors.postgres.log.slot import parse_lsn, peek
from connectors.postgres.log.state import SlotState, TableState
from connectors.postgres.session import Answers
from connectors.postgres.stream import LogStream
from connectors.sdk import Slice
from connectors.sdk.arrow_records import page_of
from connectors.sdk.items import Warn
from connectors.sdk.slice_files import read_slice_file
from elt_assets.protocol.catalog import DELETED_AT
from tests.connectors.logged import DEDUP, Table, configure
from tests.connectors.postgres.support import Database

Json = dict[str, Any]
UNCHANGED = "SOURCE_UNCHANGED"


@dataclass
class Event:
    """A row that a change became, and which of its fields are null without being so in the source."""

    row: Json
    nulled: dict[str, str] = field(default_factory=dict)

    @property
    def values(self) -> Json:
        """The columns of the table."""
        return {name: value for name, value in self.row.items() if not name.startswith("_ab_cdc_")}

    @property
    def is_delete(self) -> bool:
        return self.row[DELETED_AT] is not None


@dataclass
class Log:
    """A publication and a slot of the same name; the slot keeps all changes."""

    database: Database
    name: str

    @property
    def config(self) -> Json:
        return self.database.config(incremental="log", slot=self.name, publication=self.name)

    def streams(self) -> dict[str, LogStream]:
        streams = self.database.streams(**self.config)
        return {name: part for name, part in streams.items() if isinstance(part, LogStream)}

    def messages(self) -> list[bytes]:
        """All messages up to the present end of the log."""
        lsn = self.database.execute("SELECT pg_current_wal_flush_lsn()").strip()
        config = PostgresConfig.model_validate(self.config)
        batches = peek(config, self.name, self.name, parse_lsn(lsn))
        return [message for batch in batches for message in batch.column(0).to_pylist()]

    def decode(
        self,
        folder: Path,
        batches: Sequence[pa.RecordBatch] | None = None,
        names: Sequence[str] | None = None,
    ) -> dict[str, list[Event]]:
        """The rows of each table that the changes become.

        Args:
            batches: of the messages; None for one batch of all.
            names: the tables to decode; None for all that are published now.
        """
        streams = {
            part.id: part for name, part in self.streams().items() if names is None or name in names
        }
        members = {name: configure(stream, DEDUP) for name, stream in streams.items()}
        scope = ReadScope(streams, members, is_acknowledged=True)
        state = SlotState({}, {name: TableState(0) for name in streams})
        keys = {name: member.key_columns for name, member in members.items()}
        files = ChangeFiles(folder, "_ab_cdc_lsn", keys)
        config = PostgresConfig.model_validate(self.config)
        with Answers(config, "a test") as answers:
            writer = MessageWriter(files, scope, state, answers.rows)
            for batch in batches if batches is not None else [make_batch(self.messages())]:
                writer.add(batch)
        for error in files.failures.values():
            raise error
        events: dict[str, list[Event]] = {stream.name: [] for stream in streams.values()}
        for part in files.close():
            if isinstance(part.item, Warn):
                continue
            assert isinstance(part.item, Slice)
            stream = streams[part.stream]
            rows = list(_read_events(stream, part.item.file or ""))
            assert len(rows) == part.item.rows
            events[stream.name] += rows
        return events


def _read_events(stream: LogStream, path: str) -> Iterator[Event]:
    for batch in read_slice_file(path):
        batch.validate(full=True)
        page = page_of(batch, stream.json_schema)
        for number, record in enumerate(page.records):
            row = msgspec.json.decode(msgspec.json.encode(record))
            changes = page.changes.get(number, ())
            yield Event(row, {change["field"]: change["reason"] for change in changes})


@contextmanager
def open_log(database: Database, tables: str) -> Iterator[Log]:
    """Publish tables and create a slot; it is dropped at the end. `tables`: as in CREATE PUBLICATION."""
    name = f"log_{database.schema}"
    database.execute(
        f"CREATE PUBLICATION {name} FOR {tables} WITH (publish_via_partition_root = true)"
    )
    database.execute(f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')")
    try:
        yield Log(database, name)
    finally:
        database.execute(f"SELECT pg_drop_replication_slot('{name}'); DROP PUBLICATION {name}")


def make_batch(messages: Sequence[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(messages, pa.binary())], names=["data"])


def cut(messages: Sequence[bytes], chance: random.Random, most: int) -> list[pa.RecordBatch]:
    """Batches of random sizes, which are parts of larger ones."""
    whole = make_batch(messages)
    batches, first = [], 0
    while first < len(messages):
        count = chance.randrange(most + 1)
        batches.append(whole.slice(first, count))
        first += count
    return batches


def apply(events: Sequence[Event], key: Sequence[str]) -> Table:
    """Return the table that the rows make, in their order."""
    table = Table(key, "_ab_cdc_lsn")
    for event in events:
        table.add(event.row, event.nulled)
    return table
