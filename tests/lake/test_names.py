"""Names that every engine accepts."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elt_assets.errors import ConfigError
from elt_assets.lake.names import LONGEST, clean, clean_all


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("users", "users"),
        ("Order Items", "Order_Items"),
        ("größe", "größe"),
        ("顧客", "顧客"),
        ("../x", "___x"),
        ("a.b`c\n'\"", "a_b_c___"),
        ("😀", "_"),
        ("", "_"),
        ("\ud800", "_"),
    ],
)
def test_what_is_no_letter_digit_or_underscore_becomes_one(name: str, expected: str) -> None:
    assert clean(name) == expected


def test_long_names_stay_apart() -> None:
    one, other = "ä" * 300, "ä" * 299 + "b"
    assert clean(one) != clean(other)
    assert len(clean(one).encode()) <= LONGEST


@given(st.text())
def test_a_clean_name_is_safe_and_stays(name: str) -> None:
    cleaned = clean(name)
    assert re.fullmatch(r"\w+", cleaned)
    assert len(cleaned.encode()) <= LONGEST
    assert clean(cleaned) == cleaned


@given(st.lists(st.text(max_size=4), unique=True))
def test_names_never_collide_silently(names: list[str]) -> None:
    try:
        cleaned = clean_all(names, "field")
    except ConfigError:
        return
    assert len({value.casefold() for value in cleaned.values()}) == len(names)


@pytest.mark.parametrize("names", [["a", "A"], ["a b", "a_b"], ["straße", "STRASSE"], ["", "_"]])
def test_a_collision_names_both(names: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        clean_all(names, "field")
    assert repr(names[0]) in caught.value.message and repr(names[1]) in caught.value.message


@pytest.mark.parametrize("name", ["_airbyte_raw_id", "_AIRBYTE_x", "_elt_partition", "_is_current"])
def test_this_projects_own_names_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="a name this project uses"):
        clean_all([name], "field")
