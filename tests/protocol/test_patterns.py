"""Regular expressions of others: they mean what they mean in Python, and end."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.declarative.manifest.template import Template, TemplateError
from connectors.sdk.config import validate
from connectors.sdk.reports import listen_to_warnings
from elt_assets.errors import ConfigError
from elt_assets.protocol import specification
from elt_assets.protocol.specification import Pattern, search

pytestmark = pytest.mark.unit

PARTS = ["a", "b", ".", "*", "+", "?", "^", "$", "[ab]", "(a)", "|", r"\d", "{2}", "1"]
ENDLESS = "(?:a|aa)+$"
ALMOST = "a" * 200 + "b"


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specification, "PATTERN_SECONDS", 0.02)


@given(
    st.lists(st.sampled_from(PARTS), max_size=6),
    st.text("ab1 ", max_size=12),
)
def test_a_pattern_means_what_it_means_in_python(parts: list[str], text: str) -> None:
    pattern = "".join(parts)
    try:
        expected = re.search(pattern, text)
    except re.error:
        with pytest.raises(re.error):
            search(pattern, text)
        return
    match = search(pattern, text)
    assert (match and (match.span(), match.groups())) == (
        expected and (expected.span(), expected.groups())
    )
    assert Pattern(pattern).replace(text, "-") == re.sub(pattern, "-", text)


def test_a_pattern_that_takes_too_long_ends() -> None:
    with pytest.raises(TimeoutError):
        search(ENDLESS, ALMOST)


@pytest.mark.parametrize(
    "pattern", ["((((a{99}){99}){99}){99}){99}", "(?:(?:a{9999})*|b{9999}){99}", "a" * 10_001]
)
def test_a_pattern_that_becomes_too_large_is_invalid(pattern: str) -> None:
    with pytest.raises(re.error, match="characters"):
        search(pattern, "a")


@pytest.mark.parametrize("name", ["regex_search('%s')", "regex_replace('%s', '')"])
def test_templates_end(name: str) -> None:
    template = Template(f"{{{{ config.text | {name % ENDLESS} }}}}")
    with pytest.raises(TemplateError, match="a regular expression takes more than"):
        template.evaluate({"config": {"text": ALMOST}})


@pytest.mark.parametrize(
    "rules",
    [{"properties": {ALMOST: {"pattern": ENDLESS}}}, {"patternProperties": {ENDLESS: {}}}],
)
def test_patterns_of_a_specification_end(rules: dict[str, Any]) -> None:
    warnings: list[str] = []
    with listen_to_warnings(warnings.append):
        validate({ALMOST: ALMOST}, {"type": "object", **rules})
    assert len(warnings) == 1 and "is not valid: a pattern takes too long" in warnings[0]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"id_1": 1, "name": "x"}, None),
        ({"id_1": "x"}, "config.id_1: is not of type"),
        ({"other": 1}, "'other'"),
    ],
)
def test_properties_that_a_pattern_names_are_not_additional(
    config: dict[str, Any], message: str | None
) -> None:
    schema = {
        "properties": {"name": {}},
        "patternProperties": {r"^id_\d+$": {"type": "integer"}},
        "additionalProperties": False,
    }
    if message is None:
        validate(config, schema)
    else:
        with pytest.raises(ConfigError, match=re.escape(message)):
            validate(config, schema)


def test_references_of_a_specification_that_multiply_are_an_error() -> None:
    names = [f"a{number}" for number in range(31)]
    schema = {
        "definitions": {
            **{
                name: {"allOf": [{"$ref": f"#/definitions/{to}"}] * 2}
                for name, to in pairwise(names)
            },
            names[-1]: {"type": "object"},
        },
        "allOf": [{"$ref": "#/definitions/a0"}],
    }
    with pytest.raises(ConfigError, match="its references multiply"):
        validate({}, schema)
