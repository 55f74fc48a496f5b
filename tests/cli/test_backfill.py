"""`elt backfill`: old rows get a new column's values from the source."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from elt_assets.cli import main
from tests.orchestration.test_added_columns import ADDING
from tests.orchestration.test_streams import KEYED, TYPES, sync, things
from tests.programs.scripted import record, script, state
from tests.support.project import Project
from tests.support.runs import observations

WIDER = {**TYPES, "colour": {"type": "string"}}


@pytest.mark.usefixtures("spark_provider")
def test_a_column_is_filled_and_the_state_stays(
    own: Project, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    renamed: dict[str, Any] = {
        **KEYED,
        "rename": {"colour": "paint"},
        "filter": [],
        "history": True,
    }
    del renamed["filter"]
    sync(own, record(id=1, name="a"), record(id=2, name="b"), state(2), **KEYED, history=True)
    sync(own, record(id=3, colour="red"), state(3), **renamed, schema=WIDER)
    before = own.committed_state("scripted", "things")
    lines = [record(id=number, name="other", colour=f"c{number}") for number in (1, 2, 3)]
    script(own, [*lines, state(9)], **renamed, schema=WIDER)
    assert main(["backfill", "scripted/things", "--columns", "paint", "--history", "all"]) == 0
    assert "3 rows read, 2 rows filled, 2 versions" in capsys.readouterr().out
    assert things(spark) == [
        {"id": 1, "name": "a", "paint": "c1"},
        {"id": 2, "name": "b", "paint": "c2"},
        {"id": 3, "name": None, "paint": "red"},
    ]
    event = observations(own, "scripted", "things")[-1]
    assert event["elt/backfilled_columns"] == {"paint": 3}
    assert (event["elt/backfilled_rows"], event["elt/backfilled_versions"]) == (2, 2)
    assert own.table("scripted", "things").history(1)[0]["elt.backfill"] == "paint"
    sync(own, record(id=4), state(4), **renamed, schema=WIDER)
    assert before != own.committed_state("scripted", "things")


@pytest.mark.usefixtures("spark_provider")
def test_a_column_that_a_sync_has_added_is_filled(own: Project, spark: SparkSession) -> None:
    """Values that must only be stored as hashes are hashed."""
    more = {**ADDING, "fields": {"hash": ["name"]}}
    sync(own, record(id=1, name="a"), state(1), **more)
    sync(own, record(id=2, colour="red"), state(2), **more)
    lines = [record(id=1, name="a", colour="blue"), record(id=2, name="b", colour="x")]
    script(own, lines, **more)
    assert main(["backfill", "scripted/things", "--columns", "colour,name"]) == 0
    first, second = things(spark)
    assert (first["colour"], second["colour"]) == ("blue", "red")
    assert first["name"] != second["name"]
    assert len(second["name"]) == 64


@pytest.mark.usefixtures("spark_provider")
def test_what_cannot_be_filled_is_refused(own: Project, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(*words: str, columns: str = "colour", code: int = 2) -> None:
        capsys.readouterr()
        assert main(["backfill", "scripted/things", "--columns", columns]) == code
        output = capsys.readouterr().err
        for word in words:
            assert word in output

    script(own, [], **KEYED)
    refuse("has no table yet", "elt sync scripted things")
    sync(own, record(id=1, name="a"), state(1), **KEYED)
    refuse("has no column 'colour'", "elt discover scripted", "sync the stream once")
    refuse("did you mean 'name'", columns="nam")
    refuse("of the key", "--refresh truncate", columns="id")
    script(own, [], **KEYED, schema=WIDER)
    refuse("has no column 'colour'")
    sync(own, state(2), record(id=2), state(3), **KEYED, schema=WIDER)
    script(own, [record(id=1, name="a")], **KEYED, schema=WIDER)
    capsys.readouterr()
    assert main(["backfill", "scripted/things", "--columns", "colour"]) == 0
    assert "no value of colour" in "".join(capsys.readouterr())
    script(own, ["!exit 1"], **KEYED, schema=WIDER)
    refuse(code=1)
    script(own, [], destination_sync_mode="append", schema=WIDER)
    refuse("no key", "append_dedup")


@pytest.mark.usefixtures("spark_provider")
def test_a_column_that_the_source_has_dropped_is_named(
    own: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    sync(own, record(id=1), record(id=2, colour="red"), state(1), **KEYED, schema=WIDER)
    script(own, [record(id=1), record(id=2)], **KEYED)  # the source has lost it
    source = own.root / "scripted-source" / "catalog.json"
    text = source.read_text()
    script(own, [record(id=1), record(id=2)], **KEYED, schema=WIDER)
    source.write_text(text)
    assert main(["backfill", "scripted/things", "--columns", "colour"]) == 2
    error = capsys.readouterr().err
    assert "the source has no 'colour'" in error and "elt discover scripted --dry-run" in error
