"""Several lakes in one home: of environments, branches and copies. Events count for the table they are of."""

from __future__ import annotations

import gc
import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.events import AssetMaterializationPlannedData
from hypothesis import given
from hypothesis import strategies as st

from elt_assets.cli import main
from elt_assets.connection import place_in
from elt_assets.lake.write.states import set_state
from elt_assets.lake.write.sync_columns import make_declared_schema
from elt_assets.orchestration import states, table_events
from elt_assets.orchestration.component import ConnectionComponent
from elt_assets.orchestration.metadata import RECORDS_READ, SEQUENCE, TABLE
from elt_assets.orchestration.recovery import reconcile
from elt_assets.orchestration.status import stream_statuses
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.orchestration.table_events import LAKE_TAG, TableEvents, find_newest_run
from tests.orchestration.test_together import BOTH, ids
from tests.orchestration.ticking import instance_of
from tests.programs.scripted import record, script, state
from tests.programs.shared_source import append, connection
from tests.support.examples import few
from tests.support.project import Project
from tests.support.runs import failure_of, materialize, read_log

THINGS = dg.AssetKey(["scripted", "things"])
ROLLED_BACK, UNREPORTED, OLDER_COPY = "was rolled back or deleted", "the event log", "an older copy"
KEYED: dict[str, Any] = {"primary_key": [["id"]]}
FALSE_ALARMS = (ROLLED_BACK, UNREPORTED, OLDER_COPY, "restored")


def asset_of(project: Project, **stream: Any) -> StreamAsset:
    script(project, [], **stream)
    place = place_in(project.root / "defs" / "scripted")
    (asset,) = ConnectionComponent.load_at(place).stream_assets()
    return asset


@dataclass
class Lake:
    """A lake and what is known of its table: the sequence, and that of the last event about it.

    `has_event`: an event is of this place. `is_known`: it is of this table, by its id.
    `has_copies`: the table is at other places, too.
    """

    path: Path
    sequence: int = 0
    reported: int = 0
    has_event: bool = False
    is_known: bool = False
    has_copies: bool = False


class Model:
    """What happens to the lakes of one home, and what the next sync of each must say."""

    def __init__(self, folder: Path, asset: StreamAsset, instance: dg.DagsterInstance):
        self.lakes = [self._create(folder / name) for name in ("dev", "prod")]
        self._folder, self._asset, self._instance = folder, asset, instance
        self._count = 0

    @staticmethod
    def _create(path: Path) -> Lake:
        path.mkdir(parents=True)
        return Lake(path)

    def sync(self, lake: Lake) -> None:
        self._count += 1
        states.set_state(self._asset, str(lake.path), {"n": self._count}, self._instance)
        lake.sequence += 1
        lake.reported, lake.has_event, lake.is_known = lake.sequence, True, True

    def kill(self, lake: Lake) -> None:
        """Commit, and be killed before the event."""
        tables = self._asset.tables(str(lake.path))
        schema = make_declared_schema(self._asset.make_stored_stream())
        set_state(tables, json.dumps(state(self._count)["state"]), "killed", schema, "things")
        lake.sequence += 1

    def delete(self, lake: Lake) -> None:
        shutil.rmtree(lake.path)
        lake.path.mkdir()
        lake.sequence, lake.has_copies = 0, False
        lake.reported = lake.reported if lake.has_event else 0
        lake.is_known = False  # the id is gone with the table

    def restore(self, lake: Lake) -> None:
        """Sync, and put a backup back that was made before."""
        backup, sequence = self._free_path(), lake.sequence
        shutil.copytree(lake.path, backup)
        self.sync(lake)
        shutil.rmtree(lake.path)
        backup.rename(lake.path)
        lake.sequence, lake.is_known = sequence, sequence > 0

    def move(self, lake: Lake) -> None:
        path = self._free_path()
        lake.path.rename(path)
        lake.path, lake.has_event = path, False
        lake.reported = lake.reported if lake.is_known else 0

    def copy(self, lake: Lake) -> None:
        path = self._free_path()
        shutil.copytree(lake.path, path)
        lake.has_copies = lake.sequence > 0
        has_event = lake.is_known and lake.has_copies
        reported = lake.reported if has_event else 0
        copy = Lake(path, lake.sequence, reported, is_known=has_event, has_copies=lake.has_copies)
        self.lakes.append(copy)

    def _free_path(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self._folder)) / "lake"

    def check(self, lake: Lake) -> None:
        table = self._asset.tables(str(lake.path)).main
        warnings = reconcile(self._instance, THINGS, table).warnings
        alarms = {text for text in FALSE_ALARMS for line in warnings if text in line}
        if lake.has_copies and not lake.has_event:  # the newest event may be of another copy
            assert ROLLED_BACK not in alarms
        elif lake.reported > lake.sequence:
            assert alarms and alarms <= {ROLLED_BACK, OLDER_COPY}
        else:
            assert alarms == ({UNREPORTED} if lake.reported < lake.sequence else set())
        (status,) = stream_statuses([self._asset], str(lake.path), self._instance)
        acknowledged = table.metadata.state
        assert status.table is not None
        assert (status.table.state is None) == (acknowledged is None)


EVENTS: list[Callable[[Model, Lake], None]] = [
    Model.sync,
    Model.kill,
    Model.delete,
    Model.restore,
    Model.move,
    Model.copy,
]


@few(12)
@given(steps=st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 9)), max_size=9))
def test_only_what_happened_to_a_lake_is_reported_of_it(
    own: Project, steps: list[tuple[Callable[[Model, Lake], None], int]]
) -> None:
    asset = asset_of(own)
    with tempfile.TemporaryDirectory(dir=own.root) as folder, instance_of(own) as instance:
        model = Model(Path(folder), asset, instance)
        for happen, number in steps:
            happen(model, model.lakes[number % len(model.lakes)])
            for lake in model.lakes:
                model.check(lake)


def test_events_are_of_a_place_first_and_then_of_a_table(
    own: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also among more events of another lake than a page has; and those that name no table count."""
    asset, dev, prod = asset_of(own), own.root / "dev", own.root / "prod"
    with instance_of(own) as instance:

        def report(**metadata: Any) -> None:
            instance.report_runless_asset_event(dg.AssetMaterialization(THINGS, metadata=metadata))

        def newest(place: str) -> Any:
            commit = TableEvents(instance, THINGS, asset.tables(place).main).newest_commit()
            return None if commit is None else commit.metadata[SEQUENCE].value

        report(**{SEQUENCE: 7})  # names no table
        assert newest(str(dev)) == newest(str(prod)) == 7
        states.set_state(asset, str(prod), {"n": 1}, instance)
        for _ in range(30):
            report(
                **{SEQUENCE: 40, TABLE: {"uri": str(asset.tables(str(dev)).main.uri), "id": "x"}}
            )
        report(note="by hand in the UI")
        assert newest(str(prod)) == newest(f"file://{prod}") == 1
        assert newest(str(dev)) == 40
        shutil.copytree(prod, own.root / "moved")
        assert newest(str(own.root / "moved")) == 7  # the unmarked one may be of it
        monkeypatch.setattr(table_events, "MAX_EVENTS", 25)
        assert newest(str(prod)) == 1  # an observation, of which there is one
        events = TableEvents(instance, THINGS, asset.tables(str(own.root / "other")).main)
        assert events.newest_materialization() is not None  # the one that names no table


def sync(project: Project, number: int) -> str:
    """Sync one record in the environment in force; return the log."""
    script(project, [record(id=number), state(number)], destination_sync_mode="append")
    result = materialize(project, 'key:"scripted/things"')
    assert result.success, failure_of(result)
    return read_log(project, result)


def read_stream(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["status", "scripted", "--json"]) == 0
    (status,) = json.loads(capsys.readouterr().out)["streams"]
    return dict(status)


def read_status(capsys: pytest.CaptureFixture[str]) -> tuple[Any, int]:
    status = read_stream(capsys)
    return status["figures"] and status["figures"]["committed"], status["rows"]


@pytest.mark.usefixtures("spark_provider")
def test_environments_and_branches_do_not_see_each_others_syncs(
    own: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (own.root / "pyproject.toml").write_text(
        "[tool.elt]\nlake = 'dev'\n[tool.elt.env.prod]\nlake = 'prod'\n"
        "[tool.elt.env.branch]\nlake = 'lake_{branch}'\n"
    )
    monkeypatch.setenv("ELT_PROJECT", str(own.root))
    logs = [sync(own, number) for number in (1, 2, 3)]
    for variable, value in (("ELT_ENV", "prod"), ("ELT_BRANCH", "fix-42")):
        with monkeypatch.context() as patch:
            patch.setenv(variable, value)
            assert read_status(capsys) == (None, 0)
            logs += [sync(own, 1), sync(own, 2)]
            assert read_status(capsys) == (1, 2)
            assert "the first materialisation" not in own.metadata(*THINGS.path)["elt/summary"]
    assert read_status(capsys) == (1, 3)
    logs.append(sync(own, 4))
    assert "(+1)" in own.metadata(*THINGS.path)["elt/summary"]
    assert [text for text in FALSE_ALARMS for log in logs if text in log] == []
    monkeypatch.setenv("ELT_ENV", "prod")
    shutil.rmtree(own.root / "prod")
    assert ROLLED_BACK in sync(own, 5)
    monkeypatch.delenv("ELT_ENV")
    (own.root / "dev").rename(own.root / "moved")
    monkeypatch.setenv("ELT_LAKE", str(own.root / "moved"))
    assert read_status(capsys) == (1, 4)
    assert [text for text in FALSE_ALARMS if text in sync(own, 6)] == []


@pytest.mark.usefixtures("spark_provider")
def test_a_failed_run_is_one_of_its_lake(
    own: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (own.root / "pyproject.toml").write_text("[tool.elt]\nlake = 'dev'\n")
    monkeypatch.setenv("ELT_PROJECT", str(own.root))
    sync(own, 1)
    with monkeypatch.context() as patch:
        patch.setenv("ELT_LAKE", str(own.root / "other"))
        script(own, ["!exit 1"], destination_sync_mode="append")
        assert not materialize(own, 'key:"scripted/things"').success
        assert read_stream(capsys)["result"] == "failed"
        script(own, [record(id=None), state(1)], destination_sync_mode="append_dedup", **KEYED)
        assert materialize(own, 'key:"scripted/things"').success
        assert [check["check"] for check in read_stream(capsys)["failed_checks"]] == ["rejected"]
    script(own, ["!exit 1"], destination_sync_mode="append")
    status = read_stream(capsys)
    assert (status["result"], status["failed_checks"]) == ("complete", [])
    assert not materialize(own, 'key:"scripted/things"').success
    assert read_stream(capsys)["result"] == "failed"


@pytest.mark.usefixtures("spark_provider")
def test_a_retry_counts_only_what_is_in_its_own_lake(
    own: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full refresh that is complete in one lake is not complete in another, and stays so in its own."""
    log = connection(
        own,
        config={"fail": "orders", "kind": "STREAM"},
        sync_mode="full_refresh",
        destination_sync_mode="append",
    )
    append(log, ("users", 1), ("orders", 10), ("users", 2))
    failed = materialize(own, BOTH)
    assert not failed.success
    with monkeypatch.context() as patch:
        patch.setenv("ELT_LAKE", str(own.root / "other"))
        assert not materialize(own, BOTH, parent=failed.run_id).success
        assert [row["id"] for row in own.rows(str(own.root / "other" / "shop" / "users"))] == [1, 2]
    own.reconfigure("shop", fail=None)
    assert materialize(own, BOTH, parent=failed.run_id).success
    assert ids(own, "users") == [1, 2]


def count_objects() -> int:
    """Return the number of objects of this project's classes."""
    gc.collect()
    return sum(str(type(item).__module__).startswith("elt_assets") for item in gc.get_objects())


def test_a_process_that_lasts_keeps_nothing_of_each_commit_and_look(own: Project) -> None:
    asset, lake = asset_of(own), str(own.root / "dev")
    counts = []
    with instance_of(own) as instance:
        for number in range(60):
            states.set_state(asset, lake, {"n": number}, instance)
            assert not reconcile(instance, THINGS, asset.tables(lake).main).warnings
            assert stream_statuses([asset], lake, instance)
            states.remove_rows(asset, lake, instance)
            if number % 20 == 19:
                counts.append(count_objects())
    assert counts[2] - counts[1] < 20  # less than one of each: the newest checkpoint is kept


def test_an_event_of_another_lake_is_none_of_a_table_that_cannot_be_opened(own: Project) -> None:
    asset, dev, prod = asset_of(own), str(own.root / "dev"), str(own.root / "prod")
    with instance_of(own) as instance:
        for lake in (dev, prod):
            states.set_state(asset, lake, {"n": 1}, instance)
        uri = asset.tables(dev).main.uri
        metadata: Any = {TABLE: {"uri": uri, "id": "x"}, RECORDS_READ: 1}
        instance.report_runless_asset_event(dg.AssetMaterialization(THINGS, metadata=metadata))
        for lake, result in ((dev, "complete"), (prod, "unknown")):
            (status,) = stream_statuses([asset], lake, instance)
            assert status.result == result
            log = Path(asset.tables(lake).main.uri, "_delta_log")
            min(log.glob("*.json")).write_text("damaged")
            (status,) = stream_statuses([asset], lake, instance)
            assert status.result == ("complete" if lake == dev else "never")
            assert status.error is not None


def test_the_newest_run_of_a_lake_is_behind_many_partitions_of_another(own: Project) -> None:
    with instance_of(own) as instance:
        for lake, count in (("/dev", 1), ("/prod", 300)):
            run = dg.DagsterRun(job_name=lake[1:], tags={LAKE_TAG: lake})
            instance.add_run(run)
            for number in range(count):
                data = AssetMaterializationPlannedData(THINGS, partition=str(number))
                event = dg.DagsterEvent.build_asset_materialization_planned_event(
                    run.job_name, "step", data
                )
                instance.report_dagster_event(event, run.run_id)
        newest = [find_newest_run(instance, THINGS, lake) for lake in ("/dev", "/prod", "/other")]
        assert [run and run.job_name for run in newest] == ["dev", "prod", None]
