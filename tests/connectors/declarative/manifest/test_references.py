"""The references of a manifest are resolved."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from connectors.declarative.manifest.references import BROKEN, resolve
from connectors.declarative.manifest.report import Report
from connectors.declarative.manifest.yaml_text import parse
from elt_assets.errors import ConfigError


def resolved(value: dict[str, Any], omitted: str = "") -> dict[str, Any]:
    report = Report()
    found = resolve(parse(yaml.safe_dump(value), "the manifest"), report, omitted=omitted)
    report.raise_problems("the manifest")
    return found


def problems(value: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        resolved(value)
    return str(caught.value)


def model(node: Any, root: dict[str, Any]) -> Any:
    """The rules in a few lines, for documents without cycles."""
    if isinstance(node, str) and node.startswith("#/"):
        target: Any = root
        for part in node[2:].split("/"):
            target = target[int(part) if isinstance(target, list) else part]
        return model(target, root)
    if isinstance(node, list):
        return [model(each, root) for each in node]
    if isinstance(node, dict):
        own = {key: model(each, root) for key, each in node.items() if key != "$ref"}
        if "$ref" not in node:
            return own
        target = model(node["$ref"], root)
        return {**target, **own} if isinstance(target, dict) else target
    return node


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """A document whose parts refer to earlier parts only."""
    document: dict[str, Any] = {}
    places: list[str] = []
    for number in range(draw(st.integers(1, 6))):
        known = list(places)
        leaf = st.one_of(st.integers(), st.text(alphabet="xyz", max_size=3))
        if known:
            leaf = leaf | st.sampled_from([f"#/{place}" for place in known])
        part = st.recursive(
            leaf,
            lambda inner: st.one_of(
                st.lists(inner, max_size=3),
                st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
            ),
            max_leaves=5,
        )
        value = draw(part)
        if known and isinstance(value, dict) and draw(st.booleans()):
            value["$ref"] = f"#/{draw(st.sampled_from(known))}"
        name = f"p{number}"
        document[name] = value
        places.append(name)
        if isinstance(value, list):
            places += [f"{name}/{index}" for index in range(len(value))]
        elif isinstance(value, dict):
            places += [f"{name}/{key}" for key in value if key != "$ref"]
    return document


@given(documents())
def test_references_are_resolved_as_the_rules_say(document: dict[str, Any]) -> None:
    assert resolved(document) == {key: model(each, document) for key, each in document.items()}


def test_every_form_of_a_reference_is_resolved() -> None:
    found = resolved(
        {
            "definitions": {
                "base": {"x": 1, "y": {"z": 2}},
                "chain": "#/definitions/base",
                "text": "t",
            },
            "bare": "#/definitions/base",
            "key": {"$ref": "#/definitions/base"},
            "override": {"$ref": "#/definitions/base", "x": 5},
            "nested": {"$ref": "#/definitions/base/y", "more": "#/definitions/text"},
            "chained": {"$ref": "#/definitions/chain", "n": 1},
            "through": "#/definitions/chain/y/z",
            "list": [{"$ref": "#/definitions/base"}, "#/list/0/x"],
            "number": "#/list/0",
        }
    )
    base = {"x": 1, "y": {"z": 2}}
    assert found["bare"] == found["key"] == found["number"] == base
    assert found["override"] == {"x": 5, "y": {"z": 2}}
    assert found["nested"] == {"z": 2, "more": "t"}
    assert found["chained"] == {**base, "n": 1}
    assert found["through"] == 2
    assert found["list"] == [base, 1]


def test_a_reference_leads_through_references() -> None:
    found = resolved(
        {"a": {"b": {"c": 1}}, "d": {"$ref": "#/a"}, "e": "#/d/b/c", "f": "#/a", "g": "#/f/b/c"}
    )
    assert found["e"] == found["g"] == 1


def test_a_key_may_contain_a_slash() -> None:
    found = resolved({"a": {"b": 1}, "a/b": 2, "c": {"d/e": 3}, "r": "#/a/b", "s": "#/c/d/e"})
    assert (found["r"], found["s"]) == (2, 3)


def test_what_overrides_may_itself_refer() -> None:
    found = resolved(
        {"d": {"a": {"x": 1}, "b": {"y": 2}}, "r": {"$ref": "#/d/a", "x": {"$ref": "#/d/b"}}}
    )
    assert found["r"] == {"x": {"y": 2}}


def test_the_values_of_a_config_are_no_references() -> None:
    found = resolved({"a": {"config_overrides": {"path": "#/nothing"}, "b": "#/c"}, "c": 1})
    assert found["a"] == {"config_overrides": {"path": "#/nothing"}, "b": 1}


def test_a_reference_to_another_document_is_left_to_its_schema() -> None:
    schema = {"properties": {"a": {"$ref": "address.json"}, "b": "#/c"}, "c": 1}
    assert resolved({**schema})["properties"] == {"a": {"$ref": "address.json"}, "b": 1}


def test_what_is_referred_to_is_one_object_and_the_document_is_not_changed() -> None:
    document = parse("d: {x: {y: [1]}}\na: '#/d'\nb: {$ref: '#/d', z: 1}\n", "the manifest")
    before = repr(document.value)
    found = resolve(document, Report(), omitted="d")
    assert found["a"] is document.value["d"]
    assert found["b"]["x"] is document.value["d"]["x"]
    assert "d" not in found
    assert repr(document.value) == before


def test_what_nothing_refers_to_may_be_broken() -> None:
    found = resolved(
        {"definitions": {"a": "#/nothing", "b": "#/definitions/b"}, "c": 1}, "definitions"
    )
    assert found == {"c": 1}


def test_a_reference_to_nothing_names_its_place() -> None:
    text = problems({"streams": [{"retriever": {"$ref": "#/definitions/none"}}], "x": "#/y/0"})
    assert "streams[0].retriever.$ref: there is nothing at '#/definitions/none'" in text
    assert "x: there is nothing at '#/y/0'" in text


@pytest.mark.parametrize(
    "document",
    [
        {"a": "#/a"},
        {"a": "#/b", "b": "#/a"},
        {"a": {"$ref": "#/b"}, "b": {"c": {"$ref": "#/a"}}},
        {"a": {"b": ["#/a"]}},
        {"a": "#/a/b"},
        {"a": {"$ref": "#/a/b"}},
    ],
)
def test_a_cycle_is_a_problem(document: dict[str, Any]) -> None:
    text = problems(document)
    assert "leads to itself" in text or "nothing at" in text


def test_a_cycle_names_its_references() -> None:
    text = problems({"a": {"x": "#/b"}, "b": {"y": "#/c"}, "c": {"z": "#/b"}})
    assert "#/b → #/c → #/b" in text
    assert "c.z" in text


def test_a_bomb_of_references_is_refused() -> None:
    document: dict[str, Any] = {"a0": ["x"] * 10}
    for number in range(1, 12):
        document[f"a{number}"] = [f"#/a{number - 1}"] * 10
    with pytest.raises(ConfigError, match="more than"):
        resolved(document)


def test_a_broken_reference_stands_out() -> None:
    found = resolve(parse("a: '#/b'\n", "the manifest"), Report(), omitted="")
    assert found["a"] is BROKEN
