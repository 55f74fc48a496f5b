"""A table whose log has lost a part: what is lost is noticed, and the error says what to do."""

from __future__ import annotations

import datetime as dt
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import types as t

from elt_assets.errors import ConfigError
from elt_assets.lake.delta import snapshot
from elt_assets.lake.delta.commit_metadata import CommitMetadata
from elt_assets.lake.delta.log import HINT, checkpoint_path_of, path_of
from elt_assets.lake.delta.snapshot import Snapshot
from elt_assets.lake.delta.storage import TableChange
from elt_assets.lake.delta.table import Table
from tests.lake.staging import APP

CHECKPOINT, LAST = 4, 8


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A table with so many commits, each with a state, and one checkpoint."""
    table = Table(str(tmp_path / "users"), APP)
    table.prepare(t.StructType([t.StructField("id", t.LongType())]))
    for number in range(1, LAST + 1):
        table.commit(TableChange(), CommitMetadata(number, 1, str(number)), 0)
        if number == CHECKPOINT:
            DeltaTable(table.uri).create_checkpoint()
    return tmp_path / "users"


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def refusal(root: Path) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        Table(str(root), APP)
    assert "<unknown>" not in str(caught.value)  # the stack of delta-rs
    return caught.value


@pytest.mark.parametrize("version", [CHECKPOINT + 1, LAST - 1, LAST])
def test_an_entry_that_is_cut_off_is_named(root: Path, version: int) -> None:
    cut_off(root / path_of(version))
    assert f"its entry {path_of(version)} is not whole" in refusal(root).message


def test_a_table_without_its_newest_entry_continues_from_the_one_before(root: Path) -> None:
    cut_off(root / path_of(LAST))
    assert "if it is the newest entry, remove it" in str(refusal(root))
    (root / path_of(LAST)).unlink()
    table = Table(str(root), APP)
    assert table.metadata.state == str(LAST - 1)
    table.commit(TableChange(), CommitMetadata(table.metadata.sequence + 1, 1, "again"), 0)
    assert Table(str(root), APP).metadata.state == "again"


def test_a_lost_entry_is_noticed_before_its_version_is_written_again(root: Path) -> None:
    """The commits after it would come back when the gap is filled, on top of what they did not know."""
    (root / path_of(LAST - 1)).unlink()
    assert f"its entry {path_of(LAST - 1)} is lost" in refusal(root).message


def test_an_entry_that_is_cut_off_and_older_than_the_checkpoint_harms_only_the_past(
    root: Path,
) -> None:
    cut_off(root / path_of(CHECKPOINT - 1))
    table = Table(str(root), APP)
    assert table.metadata.state == str(LAST)
    with pytest.raises(ConfigError, match="is not whole"):
        list(table.past_commits())
    with pytest.raises(ConfigError, match="is not whole"):
        table.find_needed(dt.datetime(2020, 1, 1, tzinfo=dt.timezone.utc))


@pytest.mark.parametrize("damage", [Path.unlink, cut_off])
def test_the_error_about_a_damaged_checkpoint_names_what_to_remove(
    root: Path, damage: Callable[[Path], None]
) -> None:
    damage(root / checkpoint_path_of(CHECKPOINT))
    removed = re.findall(r"_delta_log/[\w.]+", refusal(root).guidance or "")
    assert removed == [HINT, checkpoint_path_of(CHECKPOINT)]
    for path in removed:
        (root / path).unlink(missing_ok=True)
    table = Table(str(root), APP)
    assert (table.version, table.metadata.state, table.files) == (LAST, str(LAST), [])


def test_a_checkpoint_that_the_log_cannot_replace_must_be_restored(root: Path) -> None:
    (root / path_of(0)).unlink()
    cut_off(root / checkpoint_path_of(CHECKPOINT))
    assert f"restore the checkpoint {checkpoint_path_of(CHECKPOINT)}" in str(refusal(root))


def test_a_table_whose_checkpoint_is_lost_after_it_was_opened_is_not_a_raw_error(
    root: Path,
) -> None:
    table = Table(str(root), APP)
    cut_off(root / checkpoint_path_of(CHECKPOINT))
    with pytest.raises(ConfigError, match=re.escape(f"remove {HINT}")):
        _ = table.files


def test_a_checkpoint_of_a_table_that_was_created_again_is_read_again(root: Path) -> None:
    """A process reads each checkpoint once; both tables have one of the same version."""
    assert Table(str(root), APP).metadata.state == str(LAST)
    shutil.rmtree(root)
    other = Table(str(root), APP)
    other.prepare(t.StructType([t.StructField("name", t.StringType())]))
    for number in range(1, CHECKPOINT + 1):
        other.commit(TableChange(), CommitMetadata(number, 1, "other"), 0)
    DeltaTable(other.uri).create_checkpoint()
    table = Table(str(root), APP)
    assert (table.version, table.metadata.state) == (CHECKPOINT, "other")
    assert table.schema.names == ["name"]


def change_entry(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for action in lines:
        change(action)
    path.write_text("".join(f"{json.dumps(action)}\n" for action in lines))


@pytest.mark.parametrize(
    ("version", "kind", "key"),
    [
        (0, "metaData", "id"),
        (0, "metaData", "schemaString"),
        (0, "protocol", "minReaderVersion"),
        (0, "protocol", None),
        (0, "metaData", None),
        (LAST, "txn", "appId"),
        (LAST, "txn", "version"),
    ],
)
@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_an_entry_that_lacks_a_part_is_named(
    root: Path, version: int, kind: str, key: str | None, has_checkpoint: bool
) -> None:
    if version == 0 or not has_checkpoint:
        (root / HINT).unlink()
        (root / checkpoint_path_of(CHECKPOINT)).unlink()

    def remove(action: dict[str, Any]) -> None:
        if key is None:
            action.pop(kind, None)
        else:
            action.get(kind, {}).pop(key, None)

    change_entry(root / path_of(version), remove)
    error = refusal(root)
    assert f"its entry {path_of(version)} is not valid" in error.message


@pytest.mark.parametrize("text", [b'{"txn": "\xff"}\n', b"[]\n", b"7\n", b'{"txn": [1]}\n'])
def test_an_entry_that_is_no_list_of_objects_is_named(root: Path, text: bytes) -> None:
    (root / path_of(LAST)).write_bytes(text)
    assert f"its entry {path_of(LAST)} is not valid" in refusal(root).message


@pytest.mark.parametrize("text", ["{", "[]", '{"size": 1}', '{"version": "x"}'])
def test_a_damaged_hint_is_named_and_needs_no_user(
    root: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """delta-rs lists the log instead. The warning is logged once for a table, and not at each opening."""
    (root / HINT).write_text(text)
    for _ in range(3):
        assert Table(str(root), APP).metadata.state == str(LAST)
    (warning,) = [entry for entry in caplog.records if entry.levelname == "WARNING"]
    assert HINT in warning.message and str(root) in warning.message


def test_forms_of_a_log_that_only_delta_rs_reads_are_no_fault(
    root: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Table(str(root), APP).storage
    hint = json.loads((root / HINT).read_text())
    for more in ({"parts": 2}, {"v2Checkpoint": {"path": "x.parquet"}}):
        (root / HINT).write_text(json.dumps({**hint, **more}))
        assert Snapshot.read(storage) is None
    (root / HINT).write_text(json.dumps(hint))
    assert Snapshot.read(storage) is not None
    monkeypatch.setattr(snapshot, "MAX_ENTRIES", 1)
    assert Snapshot.read(storage) is None
    monkeypatch.undo()
    (root / path_of(CHECKPOINT)).unlink()
    assert Snapshot.read(storage) is None
    assert Table(str(root), APP).metadata.state == str(LAST)
    assert not [entry for entry in caplog.records if entry.levelname == "WARNING"]
