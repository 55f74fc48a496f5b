"""A store that lies: whatever it answers, a commit counts once, and no file that a table names is removed."""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import types as t

from elt_assets.errors import EltError, SystemFailure
from elt_assets.lake.admin.maintenance import compact, maintain, vacuum
from elt_assets.lake.delta import log, opening, outcome
from elt_assets.lake.delta.commit_metadata import CommitMetadata
from elt_assets.lake.delta.outcome import NAME
from elt_assets.lake.delta.snapshot import Snapshot
from elt_assets.lake.delta.storage import DataFile, TableChange, TableStorage
from elt_assets.lake.delta.table import Table
from elt_assets.protocol.catalog import APPEND
from tests.lake.crashing import configured, event, expected, sync, view
from tests.lake.harness import Lake
from tests.lake.staging import rows
from tests.support.lying_store import Lie, LyingStore
from tests.support.object_store import ObjectStore, missing_files

SCHEMA = t.StructType([t.StructField("id", t.LongType())])
WIDER = t.StructType([*SCHEMA.fields, t.StructField("at", t.TimestampNTZType())])

LOST = [
    *(Lie(status=status) for status in (500, 503, 409, 412)),
    Lie(status=0),
    Lie(status=500, times=2),
    Lie(status=200, seconds=1),
    *(Lie(status=status, seconds=0.2, is_late=True) for status in (500, 409, 412)),
]
"""The commit takes effect, and its answer is lost, another one, late, or comes before it takes effect."""
REFUSED = [
    *(Lie(status=status, is_done=False) for status in (500, 503, 409, 412)),
    Lie(status=0, is_done=False),
    Lie(status=503, is_done=False, times=3),
]
"""The commit does not take effect at first."""


def new_table(store: ObjectStore) -> Table:
    """A table of one file, which exists in the log alone."""
    table = Table(f"s3://{store.bucket}/{os.urandom(8).hex()}", "elt:users")
    table.prepare(SCHEMA)
    table.commit(TableChange([data_file("first")]), CommitMetadata(1, 1, "1"), 1)
    return table


def data_file(name: str) -> DataFile:
    return DataFile(f"data/{name}.parquet", 1, 1, '{"numRecords": 1}')


def commit(table: Table) -> None:
    metadata = replace(table.metadata, sequence=2, state="2", commit=None)
    table.commit(TableChange([data_file("second")]), metadata, 1)


def reorganise(table: Table) -> None:
    table.reorganise(TableChange([data_file("combined")], table.files))


def add_column(table: Table) -> None:
    table.prepare(WIDER)


FIRST, SECOND, COMBINED = (data_file(name).path for name in ("first", "second", "combined"))
Contents = tuple[set[str], str | None, t.StructType]
AFTER: dict[Callable[[Table], None], Contents] = {
    commit: ({FIRST, SECOND}, "2", SCHEMA),
    reorganise: ({COMBINED}, "1", SCHEMA),
    add_column: ({FIRST}, "1", WIDER),
}
"""The contents of the table after each action."""


def contents(table: Table) -> Contents:
    """The files, the state and the columns of a table."""
    return {file.path for file in table.files}, table.metadata.state, table.schema


@given(lie=st.sampled_from([*LOST, *REFUSED]), action=st.sampled_from(list(AFTER)))
@settings(
    max_examples=20,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_a_commit_is_made_once_whatever_is_answered(
    store: ObjectStore, proxy: LyingStore, lie: Lie, action: Callable[[Table], None]
) -> None:
    table = new_table(store)
    with proxy.telling(lie):
        action(table)
        assert any(request.is_lie for request in proxy.requests())
    for found in (table, Table(table.uri, table.app_id)):
        assert contents(found) == AFTER[action]
        # A timestamp without zone needs a feature, which is a commit of its own.
        assert found.version == (3 if action is add_column else 2)


ANY = [
    *(Lie(".*", ".", status, is_done=done) for status in (500, 403, 0) for done in (True, False)),
    Lie(".*", ".", 400, is_done=False, code="ExpiredToken", times=10**6),
    Lie(".*", ".", 403, is_done=False, times=3),
]
"""Lies about any request, or from one request on."""


@given(
    lie=st.sampled_from([*ANY, *LOST, *REFUSED]),
    place=st.integers(0, 12),
    action=st.sampled_from(list(AFTER)),
)
@settings(
    max_examples=12,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_an_action_is_whole_or_not_there_whichever_request_fails(
    store: ObjectStore, proxy: LyingStore, lie: Lie, place: int, action: Callable[[Table], None]
) -> None:
    table = new_table(store)
    before = contents(table)
    error: Exception | None = None
    with proxy.telling(replace(lie, skip=place)):
        try:
            action(table)
        except Exception as raised:  # noqa: BLE001 - the store answers in many ways
            error = raised
    present = contents(Table(table.uri, table.app_id))
    assert present == AFTER[action] or (present == before and error is not None)
    assert present == before or not isinstance(error, outcome.NOTHING_PUBLISHED)
    if present == before:
        action(Table(table.uri, table.app_id))
    assert contents(Table(table.uri, table.app_id)) == AFTER[action]


def test_every_commit_has_a_name(store: ObjectStore) -> None:
    """Commits that create a table, change its columns or its files, or combine files."""
    table = new_table(store)
    for action in AFTER:
        action(table)
    entries = list(log.read_newest_first(opening.load(table.storage.location)))
    names = [entry.get(NAME) for entry in entries]
    assert len(set(names)) == len(entries) == 6 and all(names)


@pytest.mark.parametrize("lie", [*LOST, *REFUSED], ids=str)
def test_a_table_is_created_whatever_is_answered(
    store: ObjectStore, proxy: LyingStore, lie: Lie
) -> None:
    with proxy.telling(lie):
        table = new_table(store)
    assert table.version == 1


@pytest.mark.parametrize("status", [403, 503])
def test_a_checkpoint_that_cannot_be_written_is_a_warning(
    store: ObjectStore,
    proxy: LyingStore,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
) -> None:
    monkeypatch.setitem(opening.CONFIGURATION, "delta.checkpointInterval", "3")
    table = new_table(store)
    lie = Lie("PUT|POST", "checkpoint", status, is_done=False, times=99)
    with proxy.telling(lie), caplog.at_level(logging.WARNING, "elt_assets"):
        commit(table)
        assert any(request.is_lie for request in proxy.requests())
    assert table.metadata.state == "2" and table.version == 2
    assert "Version 2 of the table" in caplog.text and "was committed" in caplog.text


@pytest.mark.parametrize(
    "lie",
    [
        # pyarrow's own limit is three seconds, and delta-rs's 30.
        pytest.param(Lie(".*", ".", seconds=4), id="slow"),
        pytest.param(Lie(".*", ".", seconds=35, times=3), id="very slow", marks=pytest.mark.long),
        pytest.param(Lie(".*", ".", 503, is_done=False, times=3), id="busy"),
    ],
)
def test_a_store_that_is_slow_or_busy_is_waited_for(
    store: ObjectStore, proxy: LyingStore, lie: Lie
) -> None:
    table = new_table(store)
    system, root = table.storage.location.file_system()
    with proxy.telling(lie), system.open_output_stream(f"{root}/data/x") as sink:
        sink.write(b"some rows")
    with proxy.telling(lie), system.open_input_file(f"{root}/data/x") as source:
        assert source.read() == b"some rows"
    with proxy.telling(lie):
        commit(table)
    assert table.metadata.state == "2"


def test_an_outcome_that_cannot_be_looked_up_is_unknown(
    store: ObjectStore, proxy: LyingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    table = new_table(store)
    down = Lie("GET|PUT|POST|HEAD", ".", 500, is_done=False, times=10**6)
    lies = (Lie(status=500), replace(down, skip=1, path="_delta_log|list-type"))
    unknown = "it is unknown whether a commit to the table"
    with proxy.telling(*lies), pytest.raises(EltError, match=unknown) as raised:
        commit(table)
    assert "its files stay" in str(raised.value)
    assert Table(table.uri, table.app_id).metadata.state in ("1", "2")


def test_a_commit_that_delta_refuses_without_a_conflict_is_tried_once(tmp_path: Path) -> None:
    """Another engine has given the table a feature that delta-rs does not support."""
    created = DeltaTable.create(str(tmp_path), opening.delta_schema(SCHEMA))
    delta = Snapshot.from_delta(created, TableStorage(str(tmp_path)))
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["identityColumns"]}
    (tmp_path / "_delta_log" / f"{1:020}.json").write_text(json.dumps({"protocol": protocol}))
    attempts = []

    def write() -> None:
        attempts.append(int(delta.version()))
        properties = outcome.properties({NAME: "name"})
        delta.delta_table.create_write_transaction(
            [], "append", delta.schema(), commit_properties=properties
        )

    with pytest.raises(SystemFailure, match=r"was refused.*IdentityColumns"):
        outcome.publish_once(delta, "name", write)
    # The first attempt lost to the other engine's commit.
    assert attempts == [0, 1]


# With Spark


@pytest.fixture
def lake(lying_lake: Lake) -> Lake:
    return lying_lake


@pytest.mark.spark
def test_a_compaction_never_removes_what_it_has_committed(
    lake: Lake, store: ObjectStore, proxy: LyingStore
) -> None:
    sync(lake, [[event(1, 10)], [event(2, 20)]], configured(lake, APPEND))
    for number, lie in enumerate((Lie(status=500), Lie(status=0), Lie(status=412)), 3):
        before = rows(lake.spark, lake.table, "id")
        with proxy.telling(lie):
            assert compact(lake.spark, lake.table) == 1
        assert missing_files(store, str(lake.root).rpartition("/")[2]) == []
        assert rows(lake.spark, lake.table, "id") == before
        sync(lake, [[]] * (number - 1) + [[event(number, number * 10)]], configured(lake, APPEND))


DELETES = Lie("DELETE|POST", r"/data/|/_elt/|\?delete", 403, is_done=False, times=10**6)
BATCHES = [[event(1, 10), event(2, 10), event(None, 1)], [event(1, 20), event(None, 2)]]


@pytest.mark.spark
def test_a_delete_that_is_refused_fails_no_commit(
    lake: Lake, store: ObjectStore, proxy: LyingStore, caplog: pytest.LogCaptureFixture
) -> None:
    """A merge removes its temporary files, vacuum old ones; the next maintenance removes what has stayed."""
    lake.history = True
    with proxy.telling(DELETES), caplog.at_level(logging.WARNING, "elt_assets"):
        sync(lake, BATCHES)
        assert vacuum(lake.table, dt.timedelta(0)) == 0
        refused = [request for request in proxy.requests() if request.is_lie]
    assert view(lake) == expected(BATCHES)
    assert refused and "could not be removed; maintenance removes it later" in caplog.text
    maintain(lake.spark, lake.tables(), dt.timedelta(0))
    assert view(lake) == expected(BATCHES)
    folder = f"{lake.uri.partition('://')[2]}/data/"
    data = [name for name in store.objects() if name.startswith(folder)]
    assert len(data) == len(lake.table.files)


@pytest.mark.spark
@pytest.mark.parametrize(
    "path", ["users/data/", pytest.param("users_history/data/", marks=pytest.mark.long)]
)
def test_an_upload_that_is_refused_is_the_error_that_is_shown(
    lake: Lake, store: ObjectStore, proxy: LyingStore, path: str
) -> None:
    lake.history = True
    sync(lake, BATCHES[:1])
    lie = Lie("PUT|POST", path, 403, is_done=False, times=10**6)
    with (
        proxy.telling(lie),
        pytest.raises(Exception, match=r"ACCESS_DENIED|AccessDenied") as raised,
    ):
        sync(lake, BATCHES)
    assert "FileNotFoundError" not in str(raised.value)
    assert view(lake) == expected(BATCHES[:1])
    sync(lake, BATCHES)
    assert view(lake) == expected(BATCHES)
