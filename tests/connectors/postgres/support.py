"""Reads of the source postgres, with what happens in the database between two slices."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from connectors.postgres import Postgres as Source
from connectors.sdk import Checkpoint, Slice, Wait
from connectors.sdk.arrow_records import page_of
from connectors.sdk.items import Estimate, Page, Warn
from connectors.sdk.slices import SlicedStream, SliceReader
from elt_assets.protocol.catalog import ConfiguredStream
from tests.support.postgres import Postgres

Json = dict[str, Any]


@dataclass
class Database:
    """A schema of a server. `{s}` stands for it in SQL."""

    server: Postgres
    schema: str

    def execute(self, sql: str) -> str:
        return self.server.execute(f"SET search_path = {self.schema}, public; {sql}")

    def lines(self, sql: str) -> list[str]:
        return self.execute(sql).splitlines()

    def config(self, **more: Any) -> Json:
        address = {"host": "127.0.0.1", "port": self.server.port, "database": "postgres"}
        return {**address, "user": "elt", "schemas": [self.schema], **more}

    def streams(self, **config: Any) -> dict[str, SlicedStream]:
        streams = Source().open(self.config(**config))
        return {stream.name: stream for stream in streams if isinstance(stream, SlicedStream)}

    def reader(self, name: str, configured: Json, **config: Any) -> Reader:
        stream = self.streams(**config)[name]
        described = msgspec.json.decode(stream.describe().to_json())
        text = msgspec.json.encode({"stream": described, **configured})
        config_text = msgspec.json.encode(self.config(**config))
        return Reader(stream, ConfiguredStream.from_json(text), config_text, text)


FULL: Json = {"sync_mode": "full_refresh", "destination_sync_mode": "overwrite"}
DEDUP: Json = {"sync_mode": "full_refresh", "destination_sync_mode": "overwrite_dedup"}


def use_cursor(cursor: str | None, destination: str = "append") -> Json:
    modes = {"sync_mode": "incremental", "destination_sync_mode": destination}
    return {**modes, "cursor_field": [cursor]} if cursor else modes


class Interrupted(Exception):
    """The read ends where a test wants it to."""


@dataclass
class Reader:
    """Reads a stream as tasks do, and keeps the last state of which all slices are read."""

    stream: SlicedStream
    configured: ConfiguredStream
    config: bytes
    text: bytes
    state: Json | None = None
    slices: list[Slice] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    changes: list[Json] = field(default_factory=list)

    def read(self, between: Callable[[int], Any] = lambda _: None) -> list[Json]:
        """The rows of a read that goes on from the last state.

        Args:
            between: called before each slice, with its number.
        """
        self.slices, self.warnings, rows = [], [], []
        uncommitted: list[Json] = []
        parts = iter(self.stream.slices(self.configured, self.state))
        try:
            for part in parts:
                if isinstance(part, Slice):
                    between(len(self.slices))
                    self.slices.append(part)
                    uncommitted += self.read_slice(part)
                elif isinstance(part, Checkpoint):
                    assert isinstance(part.state, dict)
                    self.state = msgspec.json.decode(msgspec.json.encode(part.state))
                    rows += uncommitted
                    uncommitted = []
                elif isinstance(part, Warn):
                    self.warnings.append(part.text)
                else:
                    assert isinstance(part, Wait | Estimate)
        except Interrupted:
            return rows
        finally:
            parts.close()  # type: ignore[attr-defined]
        return rows + uncommitted

    def read_slice(self, part: Slice) -> list[Json]:
        task = SliceReader("connectors.postgres", self.config, self.text)
        rows: list[Json] = []
        for batch in task.read(msgspec.json.encode(part.data)):
            page = page_of(batch, self.stream.json_schema)
            rows += page.records
            self.changes += [change for changes in page.changes.values() for change in changes]
        return rows

    def records(self) -> list[Json]:
        """The rows of a read from the beginning, as records."""
        items: Iterator[Any] = iter(self.stream.read(self.configured, None))
        return [row for item in items if isinstance(item, Page) for row in item.records]


def start_transaction(
    database: Database, sql: str, name: str = "postgres"
) -> subprocess.Popen[str]:
    """Run SQL in a transaction that stays open. `name`: of the database."""
    command = [*database.server._client("psql"), "-qAt", name]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"SET search_path = {database.schema}; BEGIN; {sql} SELECT 'ready';\n")
    process.stdin.flush()
    assert process.stdout.readline() == "ready\n"
    return process


def end_transaction(process: subprocess.Popen[str], sql: str) -> None:
    process.communicate(f"{sql};\n")
    assert process.returncode == 0
