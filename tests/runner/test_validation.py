"""A config against specifications that no validator should be trusted with."""

from __future__ import annotations

import contextlib
import http.server
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.runner.config.validation import validate
from tests.programs.hostile_source import hostile_source

NUMBER = {"type": "integer"}


@pytest.mark.spec("protocol.42")
@pytest.mark.parametrize(
    ("about_d", "unchecked"),
    [
        ({"examples": "2020-01-01"}, None),
        ({"required": True}, "config.d: `required` is not checked: its value is not valid JSON Schema"),
        ({"type": "text"}, "config.d: `type` is not checked: its value is not valid JSON Schema"),
        ({"enum": "x"}, "config.d: `enum` is not checked: its value is not valid JSON Schema"),
        ({"pattern": r"^(?<y>\d+)$"}, "config.d: `pattern` is not checked: it is not valid in Python"),
        ({"pattern": r"^\p{Alpha}+$"}, "config.d: `pattern` is not checked: it is not valid in Python"),
        ({"pattern": "(?:a|aa)+$"}, "config.d: `pattern` is not checked: it takes too long"),
        ({"oneOf": ["x", NUMBER]}, "config.d: `oneOf` is not checked: its value is not valid JSON Schema"),
        ({"$ref": "#/nowhere"}, "config.d: `$ref` is not checked: it refers to nothing in this schema"),
        ({"$ref": "#/properties/d"}, "config.d: `$ref` is not checked: it refers to itself"),
        ({"allOf": [{"$ref": "#/properties/d"}]}, "config.d: `$ref` is not checked: it refers to itself"),
        ("a text", "config: `d` is not checked: its value is not valid JSON Schema"),
    ],
)  # fmt: skip
def test_invalid_keywords_are_reported_and_all_others_are_checked(
    about_d: Any, unchecked: str | None
) -> None:
    schema = {"type": "object", "properties": {"d": about_d, "n": NUMBER}}
    found = validate({"d": "a" * 40 + "b", "n": "many"}, schema, "x")
    assert found.violations == ['config.n: is not of type "integer"']
    assert len(found.unchecked) == (unchecked is not None)
    assert all(unchecked and line.startswith(unchecked) for line in found.unchecked)


@pytest.mark.parametrize(
    ("schema", "is_bounded"),
    [
        ({"properties": {"n": NUMBER}}, True),
        ({"properties": {"n": {"pattern": "(?:a|aa)+$"}}}, True),
        ({"definitions": {"n": NUMBER}, "properties": {"n": {"$ref": "#/definitions/n"}}}, False),
        ({"unevaluatedProperties": False}, False),
        ({"description": "x" * (1 << 20)}, False),
    ],
)
def test_only_a_bounded_check_is_made_in_this_process(
    monkeypatch: pytest.MonkeyPatch, schema: Any, is_bounded: bool
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/program")
    expected = contextlib.nullcontext() if is_bounded else pytest.raises(FileNotFoundError)
    with expected:
        assert validate({}, schema, "x").violations == []


def test_a_schema_that_contains_itself_ends_with_the_config() -> None:
    tree = {"properties": {"left": {"$ref": "#/definitions/tree"}, "n": NUMBER}}
    schema = {"definitions": {"tree": tree}, "$ref": "#/definitions/tree"}
    assert validate({"left": {"left": {"n": 1}}}, schema, "x").unchecked == []


def test_an_invalid_pattern_of_names_leaves_the_other_patterns() -> None:
    schema = {"patternProperties": {"(?<x>)": {"type": "null"}, "^n": NUMBER}}
    found = validate({"n": "x"}, schema, "x")
    assert found.violations == ['config.n: is not of type "integer"']
    assert (
        "config: `patternProperties` is not checked: it is not valid in Python"
        in found.unchecked[0]
    )


def test_a_reference_may_point_to_the_whole_schema() -> None:
    schema = {"properties": {"child": {"$ref": "#"}, "n": NUMBER}}
    found = validate({"child": {"child": {"n": "x"}}}, schema, "x")
    assert found.violations == ['config.child.child.n: is not of type "integer"']
    assert found.unchecked == []


def test_the_target_of_a_reference_in_any_place_is_checked() -> None:
    schema = {
        "components": {"d": {"pattern": "(", "minLength": 9}},
        "properties": {"d": {"$ref": "#/components/d"}},
    }
    found = validate({"d": "short"}, schema, "x")
    assert found.violations == ["config.d: violates `minLength`: 9"]
    assert "`pattern`" in found.unchecked[0]


def test_a_property_is_not_additional_if_its_pattern_is_invalid() -> None:
    schema = {"patternProperties": {"(?<x>)": {}}, "additionalProperties": False}
    assert validate({"anything": 1}, schema, "x").violations == []


@pytest.fixture
def server() -> Iterator[tuple[str, list[str]]]:
    """The address of an HTTP server, and the paths that it was asked for."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_port}", asked
        listening.shutdown()


def test_no_reference_is_fetched(server: tuple[str, list[str]], tmp_path: Path) -> None:
    address, asked = server
    (tmp_path / "no.json").write_text('{"type": "null"}')
    schema = {
        "$id": f"{address}/base",
        "properties": {
            "a": {"$ref": f"{address}/a"},
            "b": {"$ref": (tmp_path / "no.json").as_uri()},
            "c": {"$ref": "other.json"},
            "d": {"$schema": f"{address}/dialect", "$ref": "#/definitions/n"},
        },
        "definitions": {"n": {"$id": f"{address}/n", **NUMBER}},
    }
    found = validate({"a": 1, "b": 1, "c": 1, "d": "x"}, schema, "x")
    assert found.violations == ['config.d: is not of type "integer"']
    assert [line.partition(":")[0] for line in sorted(found.unchecked)] == [
        f"config.{name}" for name in "abc"
    ]
    assert asked == []


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"properties": {"a": schema}}
    return schema


def test_a_specification_that_is_nested_too_deeply_is_an_error() -> None:
    with pytest.raises(SystemFailure, match="connector x cannot be checked") as failure:
        validate({}, nested(50_000), "x")  # more than any recursion limit that a process sets
    assert failure.value.guidance


@pytest.mark.long
def test_exponential_references_are_stopped() -> None:
    doubling: dict[str, Any] = {
        f"a{n}": {"allOf": [{"$ref": f"#/definitions/a{n + 1}"}] * 2} for n in range(60)
    }
    schema = {"definitions": {**doubling, "a60": {}}, "$ref": "#/definitions/a0"}
    with pytest.raises(SystemFailure, match="takes more than"):
        validate({"x": 1}, schema, "x")


def test_a_property_with_an_invalid_pattern_is_a_secret() -> None:
    schema = {"patternProperties": {"(": {"airbyte_secret": True}}}
    found = validate({"password": "hunter2"}, schema, "x")
    assert [value for _, value in found.secrets] == ["hunter2"]


@pytest.mark.spec("airbyte.9")
def test_unchecked_keywords_are_logged_once(tmp_path: Path) -> None:
    heard: list[tuple[str, str]] = []
    schema = {"properties": {"day": {"pattern": "(?<y>)"}, "n": NUMBER}}
    answer = 'say("CONNECTION_STATUS", connectionStatus={"status": "SUCCEEDED"})'
    connector = hostile_source(
        tmp_path,
        answer,
        {"day": "x"},
        schema,
        on_log=lambda level, text: heard.append((level, text)),
    )
    assert connector.check().succeeded and connector.check().succeeded
    [(level, text)] = heard
    assert level == "WARN" and "connector hostile: config.day: `pattern` is not checked" in text
    with pytest.raises(ConfigError, match=r"config\.n"):
        hostile_source(tmp_path, answer, {"n": "x"}, schema).check()
