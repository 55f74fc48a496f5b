"""`elt discover --sample`, and what `elt discover` says of columns that syncs have added."""

from __future__ import annotations

from typing import Any

import pytest

from elt_assets.cli import main
from elt_assets.connection import find_place, load_catalog
from tests.orchestration.test_added_columns import ADDING
from tests.orchestration.test_streams import sync
from tests.programs.scripted import record, script, state
from tests.support.project import Project


def fields(stream: str = "scripted") -> dict[str, Any]:
    (described,) = load_catalog(find_place(stream)).streams
    properties: dict[str, Any] = described.json_schema["properties"]
    return properties


def test_types_are_proposed_for_what_is_not_described_or_wrong(
    own: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = {
        "id": {"type": "integer"},
        "price": {"type": "integer", "description": "in euros"},
        "name": {"type": "string"},
        "any": {},
        "open": {"type": "object"},
        "unseen": {"type": "boolean"},
    }
    lines = [
        record(id=1, price=1, name="2024-01-01", any=True, open={"a": 1}, nothing=None),
        record(
            id=2, price=1.5, name="secret", any=None, day="2024-01-01", at="2024-01-01T10:00:00Z"
        ),
        record(id=3, day="2024-01-02", at="2024-01-01T10:00:00.5Z", parts=[{"n": 1}, {"n": None}]),
        record(id="not read"),
    ]
    script(own, lines, schema=schema)
    before = fields()
    assert main(["discover", "scripted", "--sample", "3", "--dry-run"]) == 0
    assert fields() == before
    text = capsys.readouterr().out
    assert "secret" not in text and "was not changed" in text
    assert "records read: things 3" in text
    assert main(["discover", "scripted", "--sample", "3"]) == 0
    text_type = {"type": ["null", "string"]}
    assert fields() == {
        **schema,
        "price": {"type": ["null", "integer", "number"], "description": "in euros"},
        "any": {"type": ["null", "boolean"]},
        "day": {**text_type, "format": "date"},
        "at": {**text_type, "format": "date-time"},
        "parts": {
            "type": ["null", "array"],
            "items": {
                "type": ["null", "object"],
                "properties": {"n": {"type": ["null", "integer"]}},
            },
        },
    }


def test_a_stream_that_cannot_be_read_keeps_its_schema(
    own: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    script(own, [record(id=1, more=1), "!exit 1"])
    assert main(["discover", "scripted", "--sample", "5"]) == 0
    output = capsys.readouterr()
    assert "things: after 1 records" in output.out + output.err
    assert fields()["more"] == {"type": ["null", "integer"]}


@pytest.mark.usefixtures("spark_provider")
def test_columns_that_syncs_have_added_are_named(
    own: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    sync(own, record(id=1, colour="red"), state(1), **ADDING)
    assert main(["discover", "scripted", "--dry-run"]) == 0
    assert "things.colour" in capsys.readouterr().out
    assert main(["discover", "scripted", "--sample", "1"]) == 0
    assert "things.colour" not in capsys.readouterr().out.partition("has added")[2]
