"""The YAML of a manifest is read."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from connectors.declarative.manifest.yaml_text import MAX_DEPTH, parse
from elt_assets.errors import ConfigError

values = st.recursive(
    st.one_of(
        *(st.none(), st.booleans(), st.integers(), st.text(max_size=8)),
        st.floats(allow_nan=False, allow_infinity=False),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=15,
)


def read(text: str) -> Any:
    return parse(text, "the manifest").value


@given(values)
def test_values_are_read_as_they_were_written(value: Any) -> None:
    text = yaml.safe_dump(value)
    assert read(text) == value


def test_dates_stay_text() -> None:
    assert read("a: 2024-01-01\nb: 2024-01-01T00:00:00Z\nc: !!timestamp 2024-01-01\n") == {
        "a": "2024-01-01",
        "b": "2024-01-01T00:00:00Z",
        "c": "2024-01-01",
    }


def test_plain_values_have_the_types_of_yaml() -> None:
    text = "[1, 0x10, 010, 1.5, .inf, yes, off, ~, null, '', a, 1_000, =]"
    infinity = float("inf")
    assert read(text) == [1, 16, 8, 1.5, infinity, True, False, None, None, "", "a", 1000, "="]


def test_an_anchor_is_one_value_and_keys_can_be_merged() -> None:
    text = "base: &b {x: 1, y: 2}\nother: *b\nmerged: {<<: *b, y: 3}\nseveral: {<<: [{z: 1}, *b], x: 5}\n"
    found = read(text)
    assert found["other"] is found["base"]
    assert found["merged"] == {"x": 1, "y": 3}
    assert found["several"] == {"x": 5, "y": 2, "z": 1}


def test_a_repeated_key_is_noted_with_its_place_and_the_last_value_counts() -> None:
    document = parse("a:\n- {b: 1, c: 2, b: 3}\n", "the manifest")
    assert document.value == {"a": [{"b": 3, "c": 2}]}
    assert document.repeated == [("a[0]", "b")]


def test_parts_with_references_are_known() -> None:
    document = parse("a: {b: ['#/x']}\nc: {$ref: y}\nd: {e: 1}\n", "the manifest")
    parts = document.value
    assert id(parts) in document.referring
    assert id(parts["a"]["b"]) in document.referring
    assert id(parts["c"]) in document.referring
    assert id(parts["d"]) not in document.referring


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a: [1\nb: 2\n", "line 2"),
        ("a: !!python/object/apply:os.system ['x']\n", "line 1"),
        ("a: !!python/name:os.system x\n", "type"),
        ("a: !!binary aGk=\n", "type"),
        ("a: &x [*x]\n", "the alias *x has no complete value before it"),
        ("a: &x {b: *x}\n", "the alias *x has no complete value before it"),
        ("? [a]\n: b\n", "key"),
        ("a: {<<: 1}\n", "<<"),
        ("a: &b [1]\n*b : 2\n", "key"),
        ("a: *nothing\n", "line 1"),
        ("a: 1\n---\nb: 2\n", "document"),
        ("[" * (MAX_DEPTH + 2) + "]" * (MAX_DEPTH + 2), "deep"),
        ("[" * 100_000, ""),
        ("a: !!int x\n", "line 1, column 4"),
        ("a: \x00\n", ""),
    ],
)
def test_what_is_not_a_plain_document_is_refused(text: str, what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert what in str(caught.value)
    assert "the manifest" in str(caught.value)


def test_a_bomb_of_aliases_is_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(ConfigError, match="more than"):
        read("\n".join(lines))


def test_a_bomb_of_merged_mappings_is_one_mapping() -> None:
    lines = ["m0: &m0 {x: 1}"]
    lines += [f"m{n}: &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 9)}]}}" for n in range(1, 60)]
    assert read("\n".join(lines))["m59"] == {"x": 1}


def test_only_a_plain_key_merges() -> None:
    document = read("a: {'<<': 1}\nb: [<<]\nc: &c '<<'\nd: {*c : 2}\n")
    assert document == {"a": {"<<": 1}, "b": ["<<"], "c": "<<", "d": {"<<": 2}}


def test_an_empty_text_is_nothing() -> None:
    assert read("") is None
    assert read("# only a comment\n") is None
    assert read("word") == "word"
