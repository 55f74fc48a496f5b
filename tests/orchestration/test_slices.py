"""Streams with slices, which Spark's tasks read: the same rows as by the connector's process, each once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.programs.sliced_source import Numbers
from tests.support.object_store import new_bucket, s3_server
from tests.support.project import REPOSITORY, Project, write_plugin
from tests.support.runs import failure_of, materialize

pytestmark = pytest.mark.usefixtures("spark", "numbers")

KEY = 'key:"sliced/numbers"'
DEDUP: Any = {"destination_sync_mode": "append_dedup", "sync_mode": "incremental"}
RUNS = "tests.programs.sliced_source"


@pytest.fixture
def numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connector `numbers`, of a package that is installed."""
    folder = write_plugin(
        tmp_path / "package", "any", "", "elt_assets.connectors", f"numbers = {RUNS}"
    )
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))


def connect(project: Project, *, by_tasks: bool = True, **config: Any) -> None:
    """A connection to the source."""
    stream = config.pop("stream", {"destination_sync_mode": "append"})
    folder = project.connection(
        "sliced",
        source={"connector": "numbers", "config": config, "slices": by_tasks},
        streams=[{"name": "numbers", **stream}],
    )
    catalog = {"streams": [json.loads(Numbers(config).describe().to_json())]}
    (folder / "catalog.json").write_text(json.dumps(catalog))


def rows(project: Project, name: str = "numbers") -> list[dict[str, Any]]:
    return project.comparable_rows("sliced", name)


def test_tasks_read_files_of_slices_from_the_staging_that_they_share(
    own: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config: Any = {"slices": 4, "rows": 30, "odd": True, "stream": DEDUP}
    connect(own, **config)
    assert materialize(own, KEY).success
    expected = rows(own), rows(own, "numbers_dead_letter")
    shutil.rmtree(own.home / "lake")
    with s3_server(tmp_path / "log") as endpoint:
        store = new_bucket(endpoint, tmp_path / "log")
        (tmp_path / "options.yaml").write_text(json.dumps(store.options))
        monkeypatch.setenv("ELT_STORAGE_OPTIONS", str(tmp_path / "options.yaml"))
        monkeypatch.setenv("ELT_STAGING", f"s3://{store.bucket}/staging")
        connect(own, files=True, **config)
        assert materialize(own, KEY).success
        assert store.objects() == []
    assert (rows(own), rows(own, "numbers_dead_letter")) == expected


def test_tasks_read_the_same_rows_as_the_process(own: Project) -> None:
    config: Any = {"slices": 4, "rows": 30, "odd": True, "stream": DEDUP}
    connect(own, **config)
    assert materialize(own, KEY).success
    by_tasks, dead = rows(own), rows(own, "numbers_dead_letter")
    metadata = own.metadata("sliced", "numbers")
    assert metadata["elt/records_read"] == 120
    assert "elt/source_records" not in metadata  # tasks count what they read
    assert metadata["elt/records_rejected"] == len(dead) == 17
    assert len(by_tasks) == 103 and metadata["dagster/row_count"] == 103

    shutil.rmtree(own.home / "lake")
    connect(own, by_tasks=False, **config)
    assert materialize(own, KEY).success
    assert rows(own) == by_tasks
    assert rows(own, "numbers_dead_letter") == dead


@pytest.mark.parametrize("estimate", [5_000_000, None])
@pytest.mark.parametrize(
    ("dies", "message"),
    [
        (False, "slice number 4: the source is away\nwait"),
        (True, "the machine has too little memory"),
    ],
)
def test_a_run_continues_at_the_first_slice_that_is_not_committed(
    tmp_path: Path, own: Project, dies: bool, message: str, estimate: int | None
) -> None:
    """Without an estimate, all slices are read together."""
    config: Any = {"slices": 6, "rows": 10, "estimate": estimate, "fails_at": 4, "dies": dies}
    connect(own, stream=DEDUP, failed=str(tmp_path / "failed"), **config)
    assert message in failure_of(materialize(own, KEY))
    done = own.committed_state("sliced", "numbers")["stream"]["stream_state"]["done"]
    # A task that is under way when the worker dies is read again.
    assert done == 4 or (dies and estimate is None and 0 < done < 4)
    assert len(rows(own)) == 10 * done
    assert materialize(own, KEY).success
    metadata = own.metadata("sliced", "numbers")
    assert metadata["elt/records_read"] == 60 - 10 * done
    assert [row["id"] for row in sorted(rows(own), key=lambda row: row["id"])] == [*range(60)]
    assert own.committed_state("sliced", "numbers")["stream"]["stream_state"] == {"done": 6}


def test_slices_of_a_partition_replace_its_rows(own: Project) -> None:
    """The config of each partition reaches the tasks."""
    days = {"type": "static", "keys": ["3", "5"], "bind": "rows"}
    connect(own, stream={"destination_sync_mode": "append", "partitions": days}, slices=2, rows=1)
    for key, count in (("3", 6), ("5", 16), ("3", 16)):
        assert materialize(own, KEY, partition=key).success
        assert len(rows(own)) == count


def test_a_filtered_stream_is_staged_as_records(own: Project) -> None:
    """Tasks apply no filter, so no value that must not be stored reaches them."""
    stream = {"destination_sync_mode": "append", "fields": {"hash": ["text"]}}
    connect(own, stream=stream, slices=2, rows=3, fails_at=5)
    assert materialize(own, KEY).success
    texts = {row["text"] for row in rows(own)}
    assert len(texts) == 6 and not any("text" in text for text in texts)


@pytest.mark.parametrize("kind", ["known", "unknown", "exit"])
def test_a_secret_in_an_error_of_a_slice_is_shown_and_stored_nowhere(
    own: Project, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], kind: str
) -> None:
    """Alerts, `elt sync` and lineage have their texts from the events and errors that are searched here."""
    secret = "s3cr3t-p4ssw0rd"
    monkeypatch.setenv("SLICES_PASSWORD", secret)
    connect(own, slices=2, rows=1, raises=kind, password={"env": "SLICES_PASSWORD"})
    failure = failure_of(materialize(own, KEY))
    assert "no login with ****" in failure and secret not in failure
    stored = [path for path in own.home.rglob("*") if path.is_file()]
    assert any(b"no login with ****" in path.read_bytes() for path in stored)
    assert not [path for path in stored if secret.encode() in path.read_bytes()]
    output = capfd.readouterr()
    assert secret not in output.out + output.err
