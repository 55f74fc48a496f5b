"""`spec`, `check`, and what `write` refuses before it reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from deltalake import write_deltalake
from pyarrow import table as arrow

from elt_assets.lake.session import SparkProvider
from tests.destination.running import Destination, Json, records, state, stream


@pytest.mark.spec("protocol.2")
def test_spec_prints_a_valid_schema_and_the_supported_modes(destination: Destination) -> None:
    answer = destination.run(["spec"])
    (message,) = answer.messages
    assert (answer.code, message["type"]) == (0, "SPEC")
    specification = message["spec"]
    jsonschema.Draft7Validator.check_schema(specification["connectionSpecification"])
    modes = ["append", "overwrite", "append_dedup"]  # a later one its readers would refuse
    assert specification["supported_destination_sync_modes"] == modes
    assert specification["supportsIncremental"] is True
    assert specification["protocol_version"].startswith("0.18")


@pytest.mark.parametrize("words", [[], ["read"], ["write"], ["check"]])
def test_wrong_arguments_end_with_a_usage_error(
    words: list[str], destination: Destination, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        destination.run(words)
    assert "usage:" in capsys.readouterr().err


def list_files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if "home" not in path.parts}


@pytest.mark.spec("protocol.4")
def test_a_check_leaves_no_files(destination: Destination, tmp_path: Path) -> None:
    destination.config = {"namespace": "some_where"}
    _ = destination.config_file
    before = list_files(tmp_path)
    assert destination.check() == {"status": "SUCCEEDED"}
    assert list_files(tmp_path) == before


def test_a_check_does_not_change_existing_tables(destination: Destination) -> None:
    destination.write([stream()], records(1))
    before = list_files(destination.lake)
    assert destination.check()["status"] == "SUCCEEDED"
    assert list_files(destination.lake) == before
    assert destination.ids() == [1]


def test_a_failed_check_reports_the_cause_and_leaves_no_files(
    destination: Destination, tmp_path: Path
) -> None:
    (tmp_path / "lake").write_text("a file")
    _ = destination.config_file
    before = list_files(tmp_path)
    answer = destination.check()
    assert answer["status"] == "FAILED"
    assert "lake" in answer["message"]
    assert list_files(tmp_path) == before


def test_a_check_that_cannot_read_the_files_of_spark_leaves_no_files(
    destination: Destination, tmp_path: Path, spark_provider: SparkProvider
) -> None:
    """Spark's files are elsewhere, as on a cluster whose machines have other disks."""

    class Elsewhere:
        def get(self) -> Any:
            raise OSError(28, "No space left on device")

    destination.spark = Elsewhere()  # type: ignore[assignment]
    _ = destination.config_file
    before = list_files(tmp_path)
    answer = destination.check()
    assert (answer["status"], "No space left" in answer["message"]) == ("FAILED", True)
    assert list_files(tmp_path) == before


WRONG: list[tuple[Json, str]] = [
    ({"namespace": "../up"}, "config.namespace: does not match"),
    ({"lakes": "x"}, "'lakes' was unexpected"),
    ({"checkpoint": {"rows": 0}}, "config.checkpoint.rows"),
    ({"on_schema_change": "sometimes"}, "is not one of"),
    ({"spark": "/nowhere/spark.conf"}, "/nowhere/spark.conf cannot be read"),
]


@pytest.mark.parametrize(("config", "expected"), WRONG)
def test_a_config_that_violates_the_specification_is_refused(
    destination: Destination, config: Json, expected: str
) -> None:
    destination.config = config
    if "spark" in config:
        destination.spark = None  # Spark is not started: the file is read first
    assert destination.check()["status"] == "FAILED"
    assert expected in destination.check()["message"]

    error = destination.write([stream()], [], code=1).error

    assert error["failure_type"] == "config_error"
    assert expected in error["message"]


@pytest.mark.spec("singer.1")
@pytest.mark.parametrize(
    ("config", "expected"),
    [("{", "JSON of the expected form"), ("[]", "JSON of the expected form")],
)
def test_a_config_that_is_not_an_object_is_refused(
    destination: Destination, config: str, expected: str
) -> None:
    path = destination.file("other.json", config)
    (message,) = destination.run(["check", "--config", path]).messages
    assert message["connectionStatus"]["status"] == "FAILED"
    assert expected in message["connectionStatus"]["message"]


def test_an_error_names_a_missing_file(destination: Destination) -> None:
    arguments = ["write", "--config", "/nowhere/config.json", "--catalog", "/nowhere/catalog.json"]
    answer = destination.run(arguments)
    assert answer.code == 1
    assert "config file /nowhere/config.json" in answer.error["message"]
    assert "stack_trace" not in answer.error


REFUSED: list[tuple[list[Json], str, str | None]] = [
    ([stream(mode="append_dedup", primary_key=None)], "needs a primary key", "users"),
    ([stream(mode="append_dedup", primary_key=[["x"]])], "'x' is not a column", "users"),
    ([stream(mode="soft_delete", primary_key=None)], "needs a primary key", "users"),
    ([stream(mode="update")], "'update' is not supported", "users"),
    ([stream(destination_object_name="Contact")], "`destination_object_name`", "users"),
    ([stream("a"), stream("a")], "'a' twice", "a"),
    ([{"stream": 5}], "not a configured catalog", None),
]


def test_streams_whose_names_collide_have_a_table_each(destination: Destination) -> None:
    streams = [stream("Users"), stream("a"), stream("a_dead_letter"), stream("users")]
    names = [configured["stream"]["name"] for configured in streams]
    for number in (1, 2):
        sent = [line for name in names for line in (*records(number, name=name), state(1, name))]
        destination.write(streams[::-1] if number == 1 else streams, sent)
    tables = sorted(path.parent.name for path in destination.lake.glob("*/*/_delta_log"))
    own = [name for name in tables if not name.endswith("_dead_letter")]
    assert [name.partition("_")[0] for name in own] == ["Users", "a", "a", "users"]
    assert [destination.ids(name) for name in own] == [[1, 2]] * 4


@pytest.mark.spec("protocol.31", "protocol.72", "protocol.77", "protocol.87", "airbyte.19")
@pytest.mark.parametrize(("streams", "expected", "whose"), REFUSED)
def test_an_invalid_catalog_is_refused(
    destination: Destination, streams: list[Json], expected: str, whose: str | None
) -> None:
    error = destination.write(streams, records(1), code=1).error

    assert error["failure_type"] == "config_error"
    assert expected in error["message"]
    assert error.get("stream_descriptor", {}).get("name") == whose
    assert not destination.lake.exists()


def test_a_table_of_another_writer_is_refused(destination: Destination) -> None:
    path = destination.lake / "destination" / "users"
    write_deltalake(str(path), arrow({"id": [1]}))

    error = destination.write([stream()], records(2), code=1).error

    assert error["failure_type"] == "config_error"
    assert "not written by this destination's stream 'users'" in error["message"]
    assert destination.ids() == [1]


def test_the_environment_sets_the_default_lake(
    destination: Destination, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELT_LAKE", os.fspath(tmp_path / "elsewhere"))
    config = destination.file("own.json", {"namespace": "here"})
    arguments = destination.arguments(stream())
    arguments[arguments.index("--config") + 1] = config
    assert destination.run(arguments, b"").code == 0
    assert (tmp_path / "elsewhere" / "here" / "users").is_dir()


def test_a_schema_change_is_refused_if_the_config_forbids_it(destination: Destination) -> None:
    destination.write([stream()], records(1))
    destination.config = {"on_schema_change": "fail"}
    wide = stream(properties={"id": {"type": "integer"}, "age": {"type": "integer"}})

    error = destination.write([wide], records(2), code=1).error

    assert (error["failure_type"], destination.ids()) == ("config_error", [1])
    assert error["stream_descriptor"] == {"name": "users"}
