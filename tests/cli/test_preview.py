"""`elt preview`: the first records, as they would be stored, and nothing touched."""

from __future__ import annotations

import hmac
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from elt_assets.cli import main
from tests.programs.scripted import record, script, state
from tests.support.elt import Elt
from tests.support.project import Project

TYPES = {"id": {"type": "integer"}, "name": {"type": "string"}}


def preview(elt: Elt, *words: str, code: int = 0) -> list[Any]:
    records: list[Any] = elt.json("preview", "scripted", "things", *words, code=code)["records"]
    return records


def test_only_the_first_records_are_read(own: Project, elt: Elt) -> None:
    """The source is ended: it would go on for minutes."""
    lines = [*(record(id=number, name="a") for number in range(50)), "!sleep 300", record(id=99)]
    script(own, lines)
    began = time.monotonic()
    assert preview(elt, "-n", "3") == [{"id": n, "name": "a"} for n in range(3)]
    assert time.monotonic() - began < 60
    assert len(preview(elt)) == 20


def test_records_are_shown_as_a_table(own: Project, elt: Elt) -> None:
    script(own, [record(name="Zoë", id=1), record(id=None, extra={"a": [1]}), record(id=3)])
    output = elt("preview", "scripted", "things")
    header, first, second, *_ = [line for line in output.splitlines() if line[0] in "┃│"]
    assert [cell.strip() for cell in header.split("┃")[1:-1]] == ["id", "name", "extra"]
    assert [cell.strip() for cell in first.split("│")[1:-1]] == ["1", "Zoë", ""]
    assert [cell.strip() for cell in second.split("│")[1:-1]] == ["null", "", '{"a": [1]}']
    assert "3 records" in output


def test_wide_records_are_shown_one_below_the_other(own: Project, elt: Elt) -> None:
    wide = {"id": 1, **{f"field_{number}": number for number in range(40)}}
    script(own, [record(**wide), record(**wide)], schema={k: {"type": "integer"} for k in wide})
    output = elt("preview", "scripted", "things")
    assert "record 1" in output and "record 2" in output
    assert "│ field_39 │" in output


def test_control_characters_and_markup_are_shown_as_text(own: Project, elt: Elt) -> None:
    script(own, [record(id=1, name="\x1b[2J\nred [bold]x[/bold] :smile:")])
    output = elt("preview", "scripted", "things")
    assert r"\x1b[2J\nred [bold]x[/bold] :smile:" in output


def test_excluded_fields_are_omitted_and_hashed_fields_are_hashed(
    own: Project, elt: Elt, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ELT_HASH_SALT", "salt")
    lines = [record(id=1, name="Ann", ssn="1-2", address={"street": "x", "city": "y"}), "!exit 0"]
    fields = {"exclude": ["ssn", "address.street"], "hash": ["name"]}
    street = {"type": "object", "properties": {"street": {}, "city": {}}}
    script(own, lines, schema={**TYPES, "ssn": {}, "address": street}, fields=fields)
    digest = hmac.digest(b"salt", b"Ann", "sha256").hex()
    assert preview(elt) == [{"id": 1, "name": digest, "address": {"city": "y"}}]
    assert "ssn" not in elt("preview", "scripted", "things")
    script(own, [], schema=TYPES, fields={"exclude": ["id"]})
    assert main(["preview", "scripted", "things"]) == 0
    assert "'id' is still stored" in capsys.readouterr().err


def test_a_stream_that_is_not_configured_can_be_previewed(own: Project, elt: Elt) -> None:
    script(own, [record(id=1)])
    own.amend("scripted", streams=[{"name": "elsewhere"}])
    assert preview(elt) == [{"id": 1}]
    assert "did you mean 'things'?" in elt.refuse("preview", "scripted", "thing")["guidance"]


def test_a_secret_that_the_source_sends_is_masked(
    own: Project, elt: Elt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "73571234")
    lines = [record(id=73571234, name="token 73571234")]
    script(own, lines, config={"token": {"env": "TOKEN"}})
    assert preview(elt) == [{"id": "****", "name": "token ****"}]
    assert "7357" not in elt("preview", "scripted", "things")


def test_records_before_a_failure_are_shown(
    own: Project, capsys: pytest.CaptureFixture[str], elt: Elt
) -> None:
    script(own, [record(id=1), "!exit 3"])
    assert "ended with exit code 3" in elt("preview", "scripted", "things", code=1)
    assert preview(elt, code=1) == [{"id": 1}]
    script(own, ["!exit 3"])
    error = elt.refuse("preview", "scripted", "things", code=1)
    assert error["failure_type"] == "system_error"


def test_a_program_without_messages_is_an_error(own: Project, elt: Elt) -> None:
    script(own, ["hello", "world"])
    error = elt.refuse("preview", "scripted", "things", code=1)
    assert "printed 2 lines, none of which is a message" in error["message"]


def test_a_preview_changes_no_files_and_starts_no_spark(own: Project) -> None:
    """No Java, so no Spark; no table, no state, nothing in Dagster's storage."""
    script(own, [record(id=1), state(1)])
    before = files(own)
    environment = {
        **own.environment,
        "JAVA_HOME": "/nowhere",
        "PATH": str(Path(sys.executable).parent),
    }
    done = own._run(  # the environment is what is tested
        [str(Path(sys.executable).parent / "elt"), "preview", "scripted", "things", "--json"],
        environment,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["records"] == [{"id": 1}]
    assert files(own) - before <= {"scripted-source/arguments.json", "home/dagster.yaml"}
    arguments = json.loads((own.root / "scripted-source" / "arguments.json").read_text())
    assert "--state" not in arguments


def files(own: Project) -> set[str]:
    return {str(p.relative_to(own.root)) for p in own.root.rglob("*") if p.is_file()}
