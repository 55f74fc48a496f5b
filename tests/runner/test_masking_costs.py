"""The work of masking grows with the text, whatever a connector sends: as a secret, or as a text."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from elt_assets.errors import SystemFailure
from elt_assets.protocol.masking import MASK, MAX_PARTS, Masker, views
from elt_assets.protocol.messages import ConnectorConfig, Control
from elt_assets.protocol.secret_parts import parts
from elt_assets.runner.config import MAX_CHANGED_CHARACTERS, MAX_CHANGES, Settings
from elt_assets.runner.connector_log import ConnectorLog

SIZE = 40_000
"""About as many characters as are searched of a text."""
NASTY = [
    *("\\", "%25", "&#0", "a://x:", ":", "\\u", "\\x", "&amp;", '\\"', "ab", " ", "@", "="),
    *("-----BEGIN ", "%c3", "\\ud83d"),
]
SECRETS = [
    'abc"\\/\n%&<é',
    "abc" + "\\" * 40 + "def",
    '\\"' * 30 + "abc",
    "a" * 5_000,
    "a://b:abc@d",
]
SECONDS = 10.0
"""A bound for what takes some tenths of a second, on a busy machine; what is not linear takes minutes."""


@pytest.mark.parametrize("nasty", NASTY)
def test_a_long_text_of_escapes_is_masked_soon(nasty: str) -> None:
    mask = Masker(SECRETS)
    text = (nasty * SIZE)[:SIZE]
    begin = time.monotonic()
    for line in (
        text,
        text + "abc",
        "abc" + text,
        f"abc{text[: SIZE // 2]}def{text[: SIZE // 2]}",
    ):
        mask(line)
    assert time.monotonic() - begin < SECONDS


@pytest.mark.parametrize("nasty", [*NASTY, "a: ", "a: b\n", "\n", "[", '"', "Basic ", "{", '["'])
def test_a_long_secret_is_taken_apart_soon(nasty: str) -> None:
    begin = time.monotonic()
    for secret in (
        (nasty * SIZE)[:SIZE],
        (nasty * SIZE)[:SIZE] + "!",
        f"a: {(nasty * SIZE)[:SIZE]}\nb",
    ):
        assert secret in parts(secret)
    assert time.monotonic() - begin < SECONDS


@pytest.mark.parametrize("name", ["{n}", "same-{n}", "a" * 30 + "{n}", '{n}-\\"%'])
def test_many_secrets_do_not_slow_each_line(name: str) -> None:
    mask = Masker([name.format(n=f"{n:07}") for n in range(2_000)])
    line = "2026-01-01 same-thing " + "a" * 30 + " 17 rows of " + name.format(n=f"{1_999:07}")
    begin = time.monotonic()
    masked = [mask(line) for _ in range(20)]
    assert time.monotonic() - begin < SECONDS
    assert all(MASK in text and "0001999" not in text for text in masked)


def test_a_text_with_too_many_secrets_is_not_shown() -> None:
    mask = Masker(["a" * length for length in range(3, 600)])
    assert mask("a" * SIZE) == MASK
    assert mask("b" * SIZE) == "b" * SIZE


def test_too_many_secrets_are_an_error() -> None:
    mask = Masker()
    with pytest.raises(SystemFailure, match="more than 10,000 secrets"):
        mask.add(f"secret-{n}" for n in range(MAX_PARTS + 1))


@pytest.mark.parametrize(
    "changed",
    [[f"s{n}" for n in range(MAX_CHANGES + 1)], ["x" * (MAX_CHANGED_CHARACTERS + 1)]],
    ids=["many", "long"],
)
def test_a_control_message_with_too_much_is_refused(changed: list[str]) -> None:
    settings = Settings({"a": 1}, "connector shop", Masker(), None, print)
    config: dict[str, Any] = {"a": 1}
    control = Control(
        type="CONNECTOR_CONFIG", connectorConfig=ConnectorConfig(config={"b": changed})
    )
    with pytest.raises(SystemFailure, match="connector shop changed"):
        settings.apply(control, config, {"type": "object"})
    assert config == settings.effective({"type": "object"}) == {"a": 1}


def escape(character: str, way: int) -> str:
    """Return a character as one of the programs writes it."""
    if character.isascii() and character.isalnum():
        return character
    data = character.encode("utf-16-be")
    units = "".join(f"\\u{data[n : n + 2].hex()}" for n in range(0, len(data), 2))
    utf8 = character.encode()
    forms = [
        units,
        units.replace("\\", "\\\\\\"),
        "".join(f"%{byte:02x}" for byte in utf8),
        "".join(f"%2525{byte:02X}" for byte in utf8),
        f"&#{ord(character)};",
        f"&#x00{ord(character):X};",
        "".join(f"\\x{byte:02x}" for byte in utf8),
        f"\\{character}" if character in "\"'/\\" else character,
        f"\\\\\\{character}" if character in "\"'/" else character,
        {"\n": "\\n", "\t": "\\\\t", " ": "+", "&": "&amp;", "<": "&lt;"}.get(character, units),
    ]
    return forms[way % len(forms)]


@given(
    st.text(st.sampled_from("ab1\\\"'/%&<+ \n\té€😀;#"), min_size=6, max_size=20).filter(
        lambda text: sum(character.isalnum() for character in text) >= 4
    ),
    st.lists(st.integers(0, 9), min_size=20, max_size=20),
)
@example("111111\\;1111111\\é", [*[0] * 6, 7, *[0] * 9, 2, 0, 0, 0])
@example("11111\\é\\1", [*[0] * 5, 7, 6, *[0] * 13])
@example("%a1+a<'é%\"&%bb", [0, 0, 0, 2, 0, 0, 0, 0, 4, 4, 6, 2, 0, 0, *[0] * 6])
def test_a_secret_is_masked_if_each_of_its_characters_is_escaped_in_its_own_way(
    secret: str, ways: list[int]
) -> None:
    escaped = "".join(map(escape, secret, ways))
    masked = Masker([secret])(f"- {escaped} -")
    longest = max(
        (part for part in "".join(c if c.isalnum() else " " for c in secret).split()), key=len
    )
    assert MASK in masked and (len(longest) < 3 or longest not in masked), (escaped, masked)


@given(st.text(st.sampled_from("\\nu04x%25&#;amp\r\n😀\ud83dé")))
def test_each_character_of_a_view_has_its_place(text: str) -> None:
    for view in views(text):
        assert len(view.text) == len(view.starts) == len(view.ends)
        assert all(start < end for start, end in zip(view.starts, view.ends, strict=True))
        assert list(view.starts) == sorted(view.starts)


def test_a_text_is_cut_before_it_is_masked() -> None:
    begin = time.monotonic()
    text = ConnectorLog(Masker(SECRETS), "x").text("\\" * 10_000_000 + "abc")
    assert time.monotonic() - begin < SECONDS and len(text) < 3_000
