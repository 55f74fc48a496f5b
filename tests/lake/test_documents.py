"""Documents below a table: safe names, in place before the row that names them, removed with the last one."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from elt_assets.errors import EltError, SystemFailure
from elt_assets.failpoints import Failpoint, armed
from elt_assets.lake.admin.maintenance import maintain
from elt_assets.lake.admin.moving import move_tables
from elt_assets.lake.admin.replay import replay
from elt_assets.lake.delta.rules import Move
from elt_assets.lake.delta.storage import DOCUMENTS
from elt_assets.lake.delta.table import Table
from elt_assets.lake.write.documents import DocumentTransfer, clean_name
from elt_assets.lake.write.sync_columns import WriteSpec
from elt_assets.protocol.catalog import (
    APPEND,
    APPEND_DEDUP,
    OVERWRITE,
    ConfiguredCatalog,
    ConfiguredStream,
)
from elt_assets.protocol.messages import RawRecord
from elt_assets.storage.location import Location
from elt_assets.storage.staging import StagedFiles, Staging
from elt_assets.sync.field_selection import declare_document
from elt_assets.sync.session import Session, Threshold
from elt_assets.sync.streams import StreamRules
from tests.lake.arrow import make_old
from tests.lake.crashing import Death, Killed, configured, position
from tests.lake.harness import Lake
from tests.lake.readers import assert_all_readers_agree
from tests.lake.staging import APP, EMITTED_AT, INTEGER, STRING
from tests.support.failpoints import assert_reached
from tests.sync.doubles import state

pytestmark = pytest.mark.spark
FIELDS: dict[str, Any] = {"id": INTEGER, "at": INTEGER, "text": STRING}
Source = Sequence[Sequence[Mapping[str, Any]]]


def document(number: int | None, time: int, content: str = "") -> dict[str, Any]:
    """A record whose document has this content."""
    return {"id": number, "at": time, "text": content or f"{number} at {time}"}


def make_stream(lake: Lake, policy: str, refresh: Any = "none") -> ConfiguredStream:
    stream = configured(lake, policy, refresh, FIELDS)
    stream.include_files = stream.stream.is_file_based = stream.stream.is_resumable = True
    return stream


def send(source: Source, begin: int, folder: Path) -> Iterator[Any]:
    """Yield the records of batches, each with a staged document, and a state after each batch."""
    for number, batch in enumerate(source[begin:], begin + 1):
        for place, record in enumerate(batch):
            path = folder / f"{number}-{place}"
            path.write_text(str(record["text"]))
            reference = {"staging_file_url": str(path), "source_file_relative_path": "x/a b.txt"}
            raw = Raw(json.dumps({**reference, "file_size_bytes": path.stat().st_size}).encode())
            data = Raw(json.dumps(record).encode())
            yield RawRecord("users", data, EMITTED_AT, file_reference=raw)
        yield state(number, "users")


def sync(
    lake: Lake, source: Source, policy: str = APPEND_DEDUP, refresh: Any = "none", **more: Any
) -> None:
    """A run from the table's state, a commit for each batch."""
    stream = make_stream(lake, policy, refresh)
    begin = 0 if refresh != "none" else position(lake.tables().metadata.state) or 0
    with (
        Staging(lake.folder / "work").session() as work,
        Staging(lake.folder / "staged").session() as folder,
        DocumentTransfer(StagedFiles(folder)) as transfer,
    ):
        writer = lake.writer(declare_document(stream))
        place = transfer.folder(lake.tables().main.storage.location)
        rules = StreamRules(documents={stream.id: place})
        catalog = ConfiguredCatalog(streams=[stream])
        session = Session(catalog, {stream.id: writer}, work, Threshold(rows=1), rules)
        try:
            for _ in session.run(more.get("messages") or send(source, begin, folder)):
                pass
        finally:
            writer.close()


def read_named(lake: Lake, suffix: str = "") -> dict[str, str]:
    """The documents that the rows of a table name: their contents, by path."""
    table = Table(lake.uri + suffix, APP + suffix)
    rows = table.dataframe(lake.spark).select("text", "file_reference").collect()
    contents = {}
    for text, reference in rows:
        contents[reference["path"]] = text
        path = Path(lake.uri, reference["path"])
        assert path.read_text() == text
        assert reference["file_size_bytes"] == path.stat().st_size
        assert reference["source_file_relative_path"] == "x/a b.txt"
    return contents


def list_stored(lake: Lake) -> set[str]:
    root = Path(lake.uri)
    return {str(p.relative_to(root)) for p in (root / DOCUMENTS).rglob("*") if p.is_file()}


def age(lake: Lake, days: int = 10) -> None:
    for path in lake.folder.rglob("*"):
        if path.is_file() and "_delta_log" not in path.parts:
            make_old(path, days)


def age_log(lake: Lake, days: int = 10) -> None:
    """Let the versions of the tables be so old too."""
    then = int((dt.datetime.now(dt.timezone.utc) - dt.timedelta(days=days)).timestamp() * 1000)
    for path in lake.folder.rglob("_delta_log/*.json"):
        text = re.sub(r'("(?:deletionTimestamp|timestamp)":)\d+', rf"\g<1>{then}", path.read_text())
        path.write_text(text)
        make_old(path, days)


def remove_documents(lake: Lake) -> int:
    return sum(result.documents for result in maintain(lake.spark, lake.tables()))


# Names


@pytest.mark.unit
@given(
    st.text(max_size=300) | st.lists(st.sampled_from([*"./\\\0 é%A", "..", "x" * 90])).map("".join)
)
def test_a_name_is_safe_whatever_the_source_calls_the_file(path: str) -> None:
    name = clean_name(path)
    assert re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", name) and len(name) <= 100


@pytest.mark.unit
@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("reports/2026/a.pdf", "a.pdf"),
        ("../../etc/passwd", "passwd"),
        ("C:\\x\\Jahres bericht.PDF", "Jahres_bericht.PDF"),
        ("a/..", "file"),
        ("", "file"),
        ("日本", "_"),
        (f"{'n' * 1000}.tar.gz", f"{'n' * 97}.gz"),
        ("x" * 1000, "x" * 100),
        (f"a.{'x' * 1000}", f"a{'.' + 'x' * 1000}"[:1] + "x" * 20),
    ],
)
def test_a_name_keeps_what_it_can(path: str, name: str) -> None:
    assert clean_name(path) == name


# Syncs


def test_rows_name_their_documents_and_other_readers_read_the_table(lake: Lake) -> None:
    lake.history = True
    sync(lake, [[document(1, 1), document(2, 1)], [document(1, 2)]])
    assert set(read_named(lake).values()) == {"1 at 2", "2 at 1"}
    assert set(read_named(lake, "_history").values()) == {"1 at 1", "1 at 2", "2 at 1"}
    assert list_stored(lake) == set(read_named(lake, "_history"))
    assert_all_readers_agree(lake.spark, lake.folder)
    delta = DeltaTable(lake.uri)
    delta.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    delta.optimize.compact()
    delta.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert set(read_named(lake).values()) == {"1 at 2", "2 at 1"}
    assert list_stored(lake) >= set(read_named(lake, "_history"))


POINTS = [
    Failpoint.DOCUMENT_STORED,
    Failpoint.SEGMENT_CLOSED,
    Failpoint.SEGMENT_PARSED,
    Failpoint.COMMIT_READY,
    Failpoint.TABLE_COMMITTED,
    Failpoint.ACKNOWLEDGED,
]
BATCHES = [[document(1, 1), document(2, 1), document(None, 1)], [document(1, 2), document(3, 2)]]


def test_a_transfer_survives_a_kill_at_any_point(
    lake: Lake, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    points: set[Failpoint | None] = set()
    for number, (point, count) in enumerate((p, c) for p in POINTS for c in (1, 2)):
        killed = Lake(lake.provider, tmp_path / str(number), history=True)
        killed.folder.mkdir()
        death = Death(point, count)
        with contextlib.suppress(Killed), armed(death):
            sync(killed, BATCHES)
        assert death.point is point
        points.add(point)
        for table in ("", "_history"):
            if Table(killed.uri + table, APP + table).exists:
                read_named(killed, table)  # all that rows name is there
        sync(killed, BATCHES)
        assert sorted(read_named(killed).values()) == ["1 at 2", "2 at 1", "3 at 2"]
        rejected = [json.loads(row[0]) for row in read_rejected(killed)]
        assert [record["text"] for record in rejected] == ["None at 1"]
        expected_paths = {*read_named(killed, "_history"), rejected[0]["file_reference"]["path"]}
        assert list_stored(killed) >= expected_paths
        age(killed)
        age_log(killed)
        remove_documents(killed)
        assert list_stored(killed) == expected_paths, point
    assert_reached(request.node.nodeid, points)


def read_rejected(lake: Lake) -> list[Any]:
    return list(lake.dead_letter.dataframe(lake.spark).select("record").collect())


def test_a_replayed_record_has_its_document(lake: Lake) -> None:
    sync(lake, [[document(None, 1)]], APPEND_DEDUP)
    assert lake.table.records == 0 and len(read_rejected(lake)) == 1
    stream = make_stream(lake, APPEND)
    spec = WriteSpec(declare_document(stream), "run-2")
    replay(lake.provider, lake.tables(), spec, lake.scratch)
    assert list(read_named(lake).values()) == ["None at 1"]


# What fails


def send_bad_reference(lake: Lake, folder: Path, bad: str) -> Iterator[Any]:
    yield from send([[document(1, 1)]], 0, folder)
    raw = Raw(json.dumps({"staging_file_url": bad}).encode())
    good = folder / "good"
    good.write_text("2 at 2")
    ok = Raw(json.dumps({"staging_file_url": str(good)}).encode())
    for reference in (ok, raw):
        yield RawRecord("users", Raw(b'{"id":2,"at":2}'), EMITTED_AT, file_reference=reference)
    yield state(2, "users")


def test_a_bad_reference_ends_the_sync_at_the_state_before_it(lake: Lake) -> None:
    """What was copied after that state is removed at once."""
    folder = lake.folder / "elsewhere"
    folder.mkdir()
    stream = make_stream(lake, APPEND)
    work = lake.folder / "work"
    work.mkdir()
    with DocumentTransfer(StagedFiles(folder)) as transfer:
        writer = lake.writer(declare_document(stream))
        rules = StreamRules(
            documents={stream.id: transfer.folder(lake.tables().main.storage.location)}
        )
        catalog = ConfiguredCatalog(streams=[stream])
        session = Session(catalog, {stream.id: writer}, work, None, rules)
        with pytest.raises(SystemFailure, match="not in the staging folder"):
            list(session.run(send_bad_reference(lake, folder, "/etc/passwd")))
    assert list(read_named(lake).values()) == ["1 at 1"] and list_stored(lake) == set(
        read_named(lake)
    )
    assert position(lake.tables().metadata.state) == 1


def test_a_document_that_cannot_be_copied_ends_the_sync(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state after it is not committed, although the record is staged when the copy fails."""
    sync(lake, [[document(1, 1)]])
    (Path(lake.uri) / DOCUMENTS).rename(Path(lake.uri) / "kept")
    (Path(lake.uri) / DOCUMENTS).write_text("no folder")
    with pytest.raises(EltError):
        sync(lake, [[document(1, 1)], [document(2, 2)]])
    assert position(lake.tables().metadata.state) == 1
    (Path(lake.uri) / DOCUMENTS).unlink()
    (Path(lake.uri) / "kept").rename(Path(lake.uri) / DOCUMENTS)
    sync(lake, [[document(1, 1)], [document(2, 2)]])
    assert sorted(read_named(lake).values()) == ["1 at 1", "2 at 2"]


# Maintenance


def test_documents_of_removed_rows_stay_for_the_retention(lake: Lake) -> None:
    sync(lake, [[document(1, 1), document(2, 1)]])
    first = list_stored(lake)
    sync(lake, [[document(1, 1)], [document(1, 2)]])
    assert remove_documents(lake) == 0  # all are young
    age(lake)
    assert remove_documents(lake) == 0  # a version within the retention has the former row
    assert list_stored(lake) > first
    age_log(lake)
    age(lake)
    assert remove_documents(lake) == 1
    assert list_stored(lake) == set(read_named(lake)) and set(read_named(lake).values()) == {
        "1 at 2",
        "2 at 1",
    }


def test_documents_of_a_refresh_replace_the_others(lake: Lake) -> None:
    sync(lake, [[document(1, 1)]], OVERWRITE)
    sync(lake, [[document(1, 5)]], OVERWRITE, "truncate")
    age(lake)
    age_log(lake)
    assert len(list_stored(lake)) == 2
    assert remove_documents(lake) == 1
    assert list(read_named(lake).values()) == ["1 at 5"] and list_stored(lake) == set(
        read_named(lake)
    )


def test_documents_of_an_unfinished_refresh_stay(lake: Lake) -> None:
    sync(lake, [[document(1, 1)]], OVERWRITE)
    with contextlib.suppress(Killed), armed(Death(Failpoint.TABLE_COMMITTED, 2)):
        sync(lake, [[document(1, 5)], [document(2, 6)], [document(3, 7)]], OVERWRITE, "truncate")
    age(lake)
    age_log(lake)
    before = list_stored(lake)
    remove_documents(lake)
    assert {Path(lake.uri, path).read_text() for path in list_stored(lake)} >= {"1 at 1", "1 at 5"}
    assert list_stored(lake) <= before


def test_an_incomplete_file_of_a_running_sync_stops_nothing(lake: Lake) -> None:
    sync(lake, [[document(1, 1)]])
    age(lake)
    torn = Path(lake.uri, "data", "torn", "x.parquet")
    torn.parent.mkdir(parents=True)
    torn.write_bytes(b"PAR1")
    orphan = Path(lake.uri, DOCUMENTS, "0" * 32, "0000-a")
    orphan.parent.mkdir(parents=True)
    orphan.write_bytes(b"1")
    make_old(orphan, 10)
    assert remove_documents(lake) == 1 and not orphan.exists()


def test_documents_move_with_their_table(lake: Lake) -> None:
    lake.history = True
    sync(lake, [[document(1, 1)]])
    move = Move("users", "crm/people", APP, "elt:shop/people", "elt rename shop users people")
    move_tables(Location.parse(str(lake.folder)), move, lambda text: text)
    moved = Lake(lake.provider, lake.folder, root=str(lake.folder / "crm"), history=True)
    rows = DeltaTable(str(lake.folder / "crm" / "people")).to_pyarrow_table().to_pylist()
    (path,) = [row["file_reference"]["path"] for row in rows]
    assert (moved.folder / "crm" / "people" / path).read_text() == "1 at 1"
