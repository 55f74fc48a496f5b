"""Storage that fails or has unexpected files: the run fails, existing rows stay readable, and after a repair
the next run continues."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

from elt_assets.errors import ConfigError, EltError
from elt_assets.failpoints import Failpoint
from elt_assets.lake.delta.outcome import NotPublished
from elt_assets.lake.session import SparkProvider
from elt_assets.protocol.catalog import APPEND
from tests.lake.crashing import configured, done_at, event, expected, sync, view
from tests.lake.harness import Lake
from tests.lake.readers import assert_all_readers_agree
from tests.lake.staging import checkpoint, unnamed_files
from tests.support.small_disk import fill, mounted

BATCHES = [[event(1, 10), event(None, 1)], [event(1, 20), event(2, 20), event(None, 2)]]


@pytest.fixture
def lake(spark_provider: SparkProvider, tmp_path: Path) -> Lake:
    return Lake(spark_provider, tmp_path, history=True)


# Something else is there


def test_a_file_at_the_path_of_a_table_is_refused(lake: Lake) -> None:
    Path(lake.uri).write_text("notes")
    with pytest.raises(ConfigError, match="users must be a table, but is a file"):
        lake.tables()
    assert Path(lake.uri).read_text() == "notes"


def test_a_folder_with_other_files_is_refused(lake: Lake) -> None:
    for name in ("data", "_elt", "photo.jpg", "notes.txt"):
        (Path(lake.uri) / name).mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"something else \(notes.txt, photo.jpg\)"):
        lake.tables()


def test_a_file_at_the_path_of_a_companion_is_refused(lake: Lake) -> None:
    Path(f"{lake.uri}_history").write_text("notes")
    with pytest.raises(ConfigError, match="users_history must be a table, but is a file"):
        lake.tables()


@pytest.mark.parametrize("left", [[], ["00000000000000000000.json#1"]])
def test_a_table_whose_creation_was_interrupted_is_created_again(
    lake: Lake, left: list[str]
) -> None:
    """The folder of the log is made, then a file in it under another name, then the log's first."""
    log = Path(lake.uri) / "_delta_log"
    log.mkdir(parents=True)
    for name in left:
        (log / name).write_text('{"commitInfo":{"timest')
    sync(lake, BATCHES)
    assert view(lake) == expected(BATCHES)


# Files that are gone, or broken


def test_a_damaged_data_file_fails_the_sync(lake: Lake) -> None:
    sync(lake, BATCHES[:1])
    [file] = [Path(lake.uri) / file.path for file in lake.table.files]
    good, before = file.read_bytes(), lake.table.version
    file.write_bytes(good[:-20])
    with pytest.raises(Exception, match=file.name):
        sync(lake, BATCHES)
    assert lake.table.version == before
    file.write_bytes(good)
    assert view(lake) == expected(BATCHES[:1])
    sync(lake, BATCHES)
    assert view(lake) == expected(BATCHES)


@pytest.mark.parametrize("damage", ["missing", "cut off"])
def test_a_damaged_segment_fails_the_write(lake: Lake, damage: str) -> None:
    sync(lake, BATCHES[:1])
    writer = lake.writer(configured(lake))
    segment = lake.stage(*BATCHES[1][:2])
    if damage == "missing":
        segment.path.unlink()
    else:  # in the midst of a record
        segment.path.write_bytes(segment.path.read_bytes()[:-20])
    with pytest.raises(Exception, match=segment.path.name):
        writer.write(segment)
    writer.close()
    assert view(lake) == expected(BATCHES[:1])
    sync(lake, BATCHES)
    assert view(lake) == expected(BATCHES)
    assert_all_readers_agree(lake.spark, lake.folder)


def test_an_unreadable_commit_is_a_config_error(lake: Lake) -> None:
    sync(lake, BATCHES[:1], configured(lake, APPEND))
    log = Path(lake.uri, "_delta_log", f"{lake.table.version:020}.json")
    good = log.read_bytes()
    log.write_bytes(good[: len(good) // 2])
    with pytest.raises(ConfigError, match=r"users is damaged: its entry \S+ is not whole"):
        lake.tables()
    log.write_bytes(good)
    sync(lake, BATCHES, configured(lake, APPEND))
    assert view(lake).current == [(1, 10, "1 at 10"), *expected(BATCHES).current]


# An answer that is lost


@pytest.mark.parametrize("error", [CommitFailedError, DeltaError])
def test_a_commit_whose_answer_is_lost_is_made_once(lake: Lake, error: type[Exception]) -> None:
    """The commit takes effect and its writer gets an error: of a conflict, or any other."""
    batches = [[event(number, 10), event(None, number)] for number in range(1, 5)]
    for number in (1, 2, 3):  # the table, or a companion
        lost: list[int] = []

        def lose(lost: list[int] = lost, number: int = number) -> None:
            lost.append(number)
            raise error("the connection was closed")

        with contextlib.suppress(DeltaError), done_at(Failpoint.COMMIT_PUBLISHED, lose, number):
            sync(lake, batches[:number], configured(lake, APPEND))
        assert lost == [number]
    sync(lake, batches, configured(lake, APPEND))
    assert view(lake)._replace(history=[]) == expected(batches)._replace(history=[])
    assert_all_readers_agree(lake.spark, lake.folder)


# Files of a commit that cannot be made


def test_a_state_that_cannot_be_written_leaves_no_files(lake: Lake) -> None:
    """A large state has a file of its own, which is written before the commit."""
    sync(lake, BATCHES[:1])
    Path(lake.uri, "_elt").mkdir(exist_ok=True)
    Path(lake.uri, "_elt", "metadata").write_text("in the way")
    writer = lake.writer(configured(lake))
    writer.write(lake.stage(event(1, 30)))
    with pytest.raises(NotPublished, match="nothing was published"):
        writer.commit(checkpoint("x" * (300 << 10), final=True))
    writer.close()
    assert unnamed_files(lake.folder) == []
    assert view(lake) == expected(BATCHES[:1])


# A disk that is full


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", "2m") as disk:
        (tmp_path / "staging").mkdir()
        (disk / "staging").symlink_to(tmp_path / "staging")
        yield disk


def _sync_failure(lake: Lake) -> str | None:
    """Sync; return the message of the error for a fault of the machine, or None."""
    try:
        sync(lake, BATCHES)
    except EltError as error:
        return error.message if error.is_machine_fault else repr(error)
    return None


def test_a_full_disk_fails_the_sync_and_keeps_the_tables(lake: Lake, small_disk: Path) -> None:
    lake.folder = small_disk
    sync(lake, BATCHES[:1])
    before = DeltaTable(lake.uri).to_pyarrow_table()
    failed = 0
    for free in (0, 8 << 10, 24 << 10, 40 << 10):
        fill(small_disk, free)
        message = _sync_failure(lake)
        if message is None:
            break
        assert re.match("the disk is full.*, while .*/users was", message)
        failed += 1
        (small_disk / "filler").unlink()
        assert view(lake) == expected(BATCHES[:1])
        assert DeltaTable(lake.uri).to_pyarrow_table().equals(before)
    assert failed >= 2
    (small_disk / "filler").unlink(missing_ok=True)
    sync(lake, BATCHES)
    assert view(lake) == expected(BATCHES)
    assert_all_readers_agree(lake.spark, small_disk)


def test_a_sync_that_fails_on_a_full_disk_leaves_no_files(lake: Lake, small_disk: Path) -> None:
    """The disk is full in a task, between two tasks of a merge, or at a commit."""
    lake.folder = small_disk
    names = ["".join(map(chr, range(200 + n, 900 + n))) for n in range(40)]
    batch = [event(n, 20, text) for n, text in enumerate(names)]
    sync(lake, [batch])
    failures = set()
    for free in (0, 4 << 10, 12 << 10, 28 << 10, 60 << 10):
        fill(small_disk, free)
        writer = lake.writer(configured(lake))
        try:
            writer.write(lake.stage(*(event(n, 30 + free, text) for n, text in enumerate(names))))
            writer.commit(checkpoint(2))
        except Exception as error:  # noqa: BLE001 - the disk is full in one of many ways
            failures.add(str(error))
        finally:
            writer.close()
        (small_disk / "filler").unlink()
        assert unnamed_files(small_disk) == []
    assert failures and all("No space left" in text for text in failures)
    assert not [text for text in failures if "FileNotFoundError" in text]


def test_a_first_sync_can_be_repeated_after_a_full_disk(lake: Lake, small_disk: Path) -> None:
    lake.folder = small_disk
    lake.history = False
    for free in (0, 8 << 10, 16 << 10):
        fill(small_disk, free)
        with contextlib.suppress(Exception):
            sync(lake, BATCHES[:1])
        (small_disk / "filler").unlink()
    sync(lake, BATCHES)
    assert view(lake)._replace(history=[]) == expected(BATCHES)._replace(history=[])
