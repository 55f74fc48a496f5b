"""Jobs over several streams: a stream that fails with any error does not stop the others."""

from __future__ import annotations

import errno

import dagster as dg
import pytest

from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.orchestration.table_jobs import refuse_failures, try_each
from tests.orchestration.ticking import run_job
from tests.programs.scripted import record, script, state
from tests.support.project import Project
from tests.support.runs import failure_of, materialize, read_log

FULL_DISK = OSError(errno.ENOSPC, "No space left on device", "part-0.parquet")
ERRORS = {
    "a": (FULL_DISK, "the disk is full: part-0.parquet", False),
    "b": (ConfigError("a key is missing"), "a key is missing", False),
    "c": (SystemFailure("rows are missing"), "rows are missing", True),
    "d": (KeyError("column"), "KeyError: 'column'", True),
}
"""Errors by stream, with the text that is logged, and whether a stack trace is."""


@pytest.mark.parametrize("key", ERRORS)
def test_any_error_of_a_stream_is_logged_and_the_others_follow(
    key: str, capfd: pytest.CaptureFixture[str]
) -> None:
    error, text, has_trace = ERRORS[key]
    done = []

    def work(stream: str) -> None:
        if stream == key:
            raise error
        done.append(stream)

    streams = {name: name for name in ERRORS}
    with dg.DagsterInstance.ephemeral() as instance:
        failed = try_each(dg.build_op_context(instance=instance), "replay", streams, work)
    assert (failed, done) == ([key], [name for name in ERRORS if name != key])
    log = capfd.readouterr().err
    assert f"the replay of {key} failed" in log and text in log
    assert ("Traceback" in log) is has_trace
    with pytest.raises(dg.Failure, match=f"replay of these assets failed: {key} "):
        refuse_failures("replay", failed)


def test_an_interruption_ends_the_job() -> None:
    def work(stream: str) -> None:
        raise dg.DagsterExecutionInterruptedError

    with pytest.raises(dg.DagsterExecutionInterruptedError):
        try_each(dg.build_op_context(), "replay", {"a": "a", "b": "b"}, work)


@pytest.mark.long  # twelve seconds; the tests above are the short form
def test_a_table_that_spark_cannot_read_stops_no_other_replay(own: Project, spark: object) -> None:
    text = {"id": {"type": "string"}, "name": {"type": "string"}}
    for name in ("broken", "intact"):
        script(own, [record(id=1, name="a"), state(1)], name=name)
        assert materialize(own, f'key:"{name}/things"').success
        lines = [record(id="x", name="b"), state(2)]
        script(own, lines, name=name, schema=text, on_schema_change="freeze")
        assert materialize(own, f'key:"{name}/things"').success
        script(own, [], name=name, schema=text, on_schema_change="evolve")
    dead_letters = own.table("broken", "things_dead_letter")
    for uri in dead_letters.file_uris():
        with open(uri, "r+b") as file:  # noqa: PTH123
            file.truncate(8)
    result = run_job(own, "elt_replay")
    assert "the replay of these assets failed: broken/things (see" in failure_of(result)
    assert "intact/things: 1 records replayed" in read_log(own, result)
    assert [row["id"] for row in own.rows("intact", "things")] == ["1", "x"]
