"""Secrets: read when they are needed, and shown nowhere."""

from __future__ import annotations

import hashlib
import json
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elt_assets.errors import ConfigError
from elt_assets.protocol.masking import MASK, MIN_TRUNCATED, Masker
from elt_assets.protocol.specification import secret_values
from elt_assets.runner.references import resolve_references

SECRET = 'p ß/"w\\ö+d\n'
ALPHABET = "#§~^"  # in no mask, and in no spelling of another


@pytest.mark.parametrize(
    "shown",
    [
        SECRET,
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        json.dumps(SECRET).replace("/", "\\/"),
        quote(SECRET, safe=""),
        quote(SECRET),
        quote_plus(SECRET),
        quote(SECRET, safe="").lower(),
        repr(SECRET),
    ],
)
def test_a_secret_is_masked_in_every_notation(shown: str) -> None:
    text = Masker([SECRET])(f"login {shown}, again {shown}")
    assert text.replace('"', "").replace("'", "") == f"login {MASK}, again {MASK}"


@pytest.mark.parametrize(
    ("secrets", "text", "masked"),
    [
        (["abcd", "abcdef"], "abcdef abcd", "**** ****"),
        (["abcd", "cdef"], "xabcdefx", "x****x"),
        (["aaa"], "aaaaa!", "****!"),
        (["a.c*"], "abc a.c*", "abc ****"),
        (["ab"], "ab", "ab"),
        ([], "nothing", "nothing"),
    ],
)
def test_overlapping_secrets_are_masked_completely(
    secrets: list[str], text: str, masked: str
) -> None:
    assert Masker(secrets)(text) == masked


@given(st.lists(st.text(ALPHABET, min_size=3, max_size=5), max_size=3), st.text(ALPHABET + "a"))
def test_no_secret_is_left_in_any_text(secrets: list[str], text: str) -> None:
    masked = Masker(secrets)(text)
    assert not any(secret in masked for secret in secrets)
    assert any(secret in text for secret in secrets) or masked == text


def test_a_very_short_or_a_changed_secret_is_not_masked() -> None:
    secret = "hunter2-hunter2"
    changed = [secret[::-1], hashlib.sha256(secret.encode()).hexdigest(), secret[:7], "hunter2\n-"]
    for text in ("ab", *changed):
        assert Masker(["ab", secret])(text) == text
    assert Masker(["abc"])("abc") == MASK


def test_each_line_of_a_key_is_a_secret() -> None:
    mask = Masker(["-----BEGIN-----\nMIIEvQ\n  AgEAAo\n-----END-----\n"])
    assert mask("... AgEAAo\n-----END-----") == f"... {MASK}\n{MASK}"


def test_a_truncated_secret_at_the_end_of_a_long_text_is_masked() -> None:
    mask = Masker(["hunter2-hunter2"])
    assert mask("x" * MIN_TRUNCATED + "hunter2-hun") == "x" * MIN_TRUNCATED + MASK
    assert mask("a hunter") == "a hunter"


def test_secrets_can_be_added_later() -> None:
    mask = Masker(["first"])
    mask.add(["second"])
    assert mask("first second") == f"{MASK} {MASK}"


def test_variables_are_resolved_at_any_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE", "1")
    monkeypatch.setenv("TWO", "")
    written = {"a": {"env": "ONE"}, "b": [{"env": "TWO"}, {"env": "ONE", "x": 1}], "c": {"env": 5}}
    config, secrets = resolve_references(written)
    assert config == {"a": "1", "b": ["", {"env": "ONE", "x": 1}], "c": {"env": 5}}
    assert secrets == ["1", ""]


def test_a_missing_variable_is_reported_with_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    with pytest.raises(ConfigError, match=r"config\.a\[1\]\.b refers to .* NOT_SET") as failure:
        resolve_references({"a": [0, {"b": {"env": "NOT_SET"}}]})
    assert failure.value.guidance and "NOT_SET" in failure.value.guidance


@pytest.mark.spec("protocol.50")
@pytest.mark.parametrize(
    ("schema", "config", "found"),
    [
        ({"properties": {"a": {"airbyte_secret": True}}}, {"a": "x", "b": "y"}, ["x"]),
        ({"properties": {"a": {"airbyte_secret": True}}}, {"a": {"b": [1, None, True, "z"]}}, ["1", "z"]),
        ({"oneOf": [{"properties": {"a": {"airbyte_secret": True}}}, {}]}, {"a": "x"}, ["x"]),
        ({"properties": {"a": {"items": {"airbyte_secret": True}}}}, {"a": ["x", "y"]}, ["x", "y"]),
        ({"properties": {"a": {"allOf": [{"airbyte_secret": True}]}}}, {"a": "x"}, ["x"]),
        ({"additionalProperties": {"airbyte_secret": True}}, {"a": "x"}, ["x"]),
        ({"properties": None, "oneOf": None}, {"a": "x"}, []),
        (True, {"a": "x"}, []),
    ],
)  # fmt: skip
def test_secrets_are_found_by_the_specification(schema: Any, config: Any, found: list[str]) -> None:
    assert list(secret_values(config, schema)) == found


TYPES = {
    "properties": {
        "port": {"type": "integer"},
        "ratio": {"type": ["number", "null"]},
        "tls": {"oneOf": [{"type": "boolean"}, {"description": "no type"}]},
        "hosts": {"$ref": "#/definitions/hosts"},
        "text": {"type": ["string", "integer"]},
        "odd": {"type": "text"},
        "keys": {"items": {"type": "object"}},
    },
    "definitions": {"hosts": {"type": "array"}},
}


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("port", "5432", 5432),
        ("ratio", "0.5", 0.5),
        ("ratio", "2", 2),
        ("ratio", "null", None),
        ("tls", "True", True),
        ("hosts", '["a", "b"]', ["a", "b"]),
        ("text", "007", "007"),
        ("unknown", "5", "5"),
        ("odd", "5", "5"),
    ],
)
def test_a_variable_is_converted_to_the_type_in_the_specification(
    field: str, text: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VALUE", text)
    config, secrets = resolve_references({field: {"env": "VALUE"}}, schema=TYPES)
    assert config == {field: value} and type(config[field]) is type(value)
    assert (text in secrets) == (value is not True and value is not None)


@pytest.mark.parametrize(
    ("config", "text", "expected"),
    [
        ({"port": {"env": "VALUE"}}, "s3cr3t", "config.port must be of type integer"),
        ({"port": {"env": "VALUE"}}, "5.5", "config.port must be of type integer"),
        ({"port": {"env": "VALUE"}}, "true", "config.port must be of type integer"),
        ({"ratio": {"env": "VALUE"}}, "NaN", "config.ratio must be of type null or number"),
        ({"keys": [{}, {"env": "VALUE"}]}, "[]", r"config.keys[1] must be of type object"),
    ],
)
def test_a_variable_of_another_type_is_reported_without_its_value(
    config: Any, text: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VALUE", text)
    with pytest.raises(ConfigError) as failure:
        resolve_references(config, schema=TYPES)
    assert expected in failure.value.message and "VALUE" in failure.value.message
    assert "s3cr3t" not in str(failure.value) and failure.value.guidance


def test_a_literal_is_not_a_reference() -> None:
    written = {"a": {"literal": {"env": "NOT_SET"}}, "b": {"literal": {"literal": 1}}}
    assert resolve_references(written) == ({"a": {"env": "NOT_SET"}, "b": {"literal": 1}}, [])
