"""The states of streams whose rows are in another destination; and what a retry of a request finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from elt_assets.lake.delta.commit_metadata import CommitMetadata
from elt_assets.lake.write.companions import StreamTables
from elt_assets.lake.write.states import StateOnlyWriter
from elt_assets.lake.write.stored_stream import RefreshMode, StoredStream
from elt_assets.lake.write.sync_columns import WriteSpec
from elt_assets.protocol.catalog import APPEND, INCREMENTAL, ConfiguredStream
from tests.lake.harness import USERS
from tests.lake.staging import APP, checkpoint, stream, take_generations


def configured() -> ConfiguredStream:
    found = stream(USERS, APPEND)
    found.sync_mode, found.cursor_field, found.sync_id = INCREMENTAL, ["id"], 1
    return found


def opened(
    folder: Path, refresh: RefreshMode, intent: str | None
) -> tuple[StreamTables, StateOnlyWriter]:
    """A sync as a run begins it: a retry of the same intent goes on."""
    tables, wanted = StreamTables(str(folder / "users"), APP), configured()
    mode: RefreshMode = (
        "none" if StoredStream(wanted, tables.metadata).continues(intent) else refresh
    )
    take_generations(wanted, tables.metadata, mode)
    return tables, StateOnlyWriter(tables, WriteSpec(wanted, "run", intent=intent))


def test_a_generation_is_committed_before_its_records_are_sent(tmp_path: Path) -> None:
    for number, intent in enumerate(("first", "second"), 1):
        tables, _ = opened(tmp_path, "truncate", intent)
        assert tables.metadata.refresh is not None
        assert tables.metadata.refresh.generation == number


@pytest.mark.parametrize("refresh", ["retain", "truncate"])
def test_a_retry_keeps_the_generation(tmp_path: Path, refresh: RefreshMode) -> None:
    written = []
    for attempt in (1, 2):
        _, writer = opened(tmp_path, refresh, "request")
        written.append(writer.commit(checkpoint(attempt)).generation)
    _, writer = opened(tmp_path, refresh, "another request")
    tables, writer = opened(tmp_path, refresh, "another request")
    done = writer.commit(checkpoint(3, final=True))
    assert len(set(written)) == 1
    assert (done.generation, tables.metadata.intent) == (2, "another request")


def test_an_ordinary_sync_keeps_the_last_request(tmp_path: Path) -> None:
    for attempt, intent in enumerate(("request", None), 1):
        tables, writer = opened(tmp_path, "retain" if intent else "none", intent)
        writer.commit(checkpoint(attempt))
    assert tables.metadata.intent == "request"
    assert StoredStream(configured(), tables.metadata).continues("request")
    assert not StoredStream(configured(), CommitMetadata(0, 0, None)).continues("request")
