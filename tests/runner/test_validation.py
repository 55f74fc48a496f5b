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
from hypothesis import given, settings
from hypothesis import strategies as st

from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.runner.config_validation import validate
from tests.programs.hostile_source import hostile_source
from tests.support.examples import examples

NUMBER = {"type": "integer"}
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
_KEYWORDS = [
    "type",
    "enum",
    "required",
    "pattern",
    "properties",
    "items",
    "oneOf",
    "not",
    "minimum",
]
_KEYWORDS += [
    "multipleOf",
    "maxLength",
    "contains",
    "additionalProperties",
    "format",
    "const",
    "if",
]
keywords = st.sampled_from(_KEYWORDS)
json_schemas = st.recursive(
    json_values,
    lambda inner: st.dictionaries(keywords, inner, max_size=3) | st.lists(inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.spec("protocol.42")
@pytest.mark.parametrize(
    ("about_d", "flaw"),
    [
        ({"examples": "2020-01-01", "description": 1, "format": []}, None),
        ({"required": True}, "properties.d.required: True is not of type 'array'"),
        ({"type": "text"}, "properties.d.type: 'text' is not valid"),
        ({"enum": "x"}, "properties.d.enum: 'x' is not of type 'array'"),
        ({"pattern": r"^(?<y>\d+)$"}, "a pattern is not valid in Python"),
        ({"pattern": r"^\p{Alpha}+$"}, "a pattern is not valid in Python"),
        ({"pattern": "(?:a|aa)+$"}, "a pattern takes too long"),
        ({"patternProperties": {"(": {}}}, None),
        ({"oneOf": ["x", NUMBER]}, "properties.d.oneOf.0: 'x' is not of type"),
        ({"$ref": "#/nowhere"}, "the reference '#/nowhere' leads to nothing in it"),
        ({"$ref": "other.json"}, "the reference 'other.json' leads to nothing in it"),
        ("a text", "properties.d: 'a text' is not of type"),
    ],
)
def test_a_specification_that_is_not_valid_is_not_used(about_d: Any, flaw: str | None) -> None:
    schema = {"type": "object", "properties": {"d": about_d, "n": NUMBER}}
    result = validate({"d": "a" * 40 + "b", "n": "many"}, schema, "connector x")
    if flaw is None:
        assert (result.violations, result.flaw) == (['config.n: is not of type "integer"'], None)
    else:
        assert result.violations == [] and str(result.flaw).startswith(flaw)


@given(json_schemas, json_values)
@settings(max_examples=examples(200))
def test_a_specification_of_any_form_gives_violations_or_a_flaw(schema: Any, value: Any) -> None:
    config = {"d": value, "secret": "hunter2"}
    result = validate(
        config, {"properties": {"d": schema, "secret": {"type": "integer"}}}, "connector x"
    )
    assert result.flaw is not None or result.violations
    assert "hunter2" not in f"{result.violations}{result.flaw}"


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
        assert validate({}, schema, "connector x").violations == []


def test_a_schema_that_contains_itself_ends_with_the_config() -> None:
    tree = {"properties": {"left": {"$ref": "#/definitions/tree"}, "n": NUMBER}}
    schema = {"definitions": {"tree": tree}, "$ref": "#/definitions/tree"}
    assert validate({"left": {"left": {"n": 1}}}, schema, "connector x").flaw is None


def test_a_reference_may_point_to_the_whole_schema() -> None:
    schema = {"properties": {"child": {"$ref": "#"}, "n": NUMBER}}
    found = validate({"child": {"child": {"n": "x"}}}, schema, "connector x")
    assert found.violations == ['config.child.child.n: is not of type "integer"']
    assert found.flaw is None


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


@pytest.mark.parametrize("kind", ["server", "file", "relative"])
def test_no_reference_is_fetched(kind: str, server: tuple[str, list[str]], tmp_path: Path) -> None:
    address, asked = server
    (tmp_path / "no.json").write_text('{"type": "null"}')
    targets = {
        "server": f"{address}/a",
        "file": (tmp_path / "no.json").as_uri(),
        "relative": "other.json",
    }
    schema = {"$id": f"{address}/base", "properties": {"a": {"$ref": targets[kind]}}}
    assert "leads to nothing" in str(validate({"a": 1}, schema, "connector x").flaw)
    assert asked == []


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"properties": {"a": schema}}
    return schema


def test_a_specification_that_is_nested_too_deeply_is_an_error() -> None:
    with pytest.raises(SystemFailure, match="connector x cannot be checked") as failure:
        validate(
            {}, nested(50_000), "connector x"
        )  # more than any recursion limit that a process sets
    assert failure.value.guidance


@pytest.mark.long
def test_exponential_references_are_stopped() -> None:
    doubling: dict[str, Any] = {
        f"a{n}": {"allOf": [{"$ref": f"#/definitions/a{n + 1}"}] * 2} for n in range(60)
    }
    schema = {"definitions": {**doubling, "a60": {}}, "$ref": "#/definitions/a0"}
    with pytest.raises(SystemFailure, match="takes more than"):
        validate({"x": 1}, schema, "connector x")


def test_a_property_with_an_invalid_pattern_is_a_secret() -> None:
    schema = {"patternProperties": {"(": {"airbyte_secret": True}}}
    found = validate({"password": "hunter2"}, schema, "connector x")
    assert [value for _, value in found.secrets] == ["hunter2"]


@pytest.mark.spec("airbyte.9")
def test_an_invalid_specification_is_logged_once(tmp_path: Path) -> None:
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
    assert level == "WARN" and "the config of connector hostile is not checked: " in text
    with pytest.raises(ConfigError, match=r"config\.n"):
        hostile_source(tmp_path, answer, {"n": "x"}, schema).check()
