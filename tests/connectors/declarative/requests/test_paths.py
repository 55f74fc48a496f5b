"""Paths into JSON values: look-up, globs, setting and removing."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.declarative import paths

NAMES = st.sampled_from(["a", "b", "ab", "0", "1"])
PARTS = st.sampled_from(["a", "b", "ab", "0", "-1", "*", "a*", "?", "[ab]"])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers(0, 9) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)
RECORDS = st.dictionaries(NAMES, VALUES, max_size=4)


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The model: every place below a value."""
    children = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for name, each in children:
        yield (*at, name), each
        yield from places(each, (*at, name))


def fits(place: tuple[Any, ...], path: tuple[str, ...], record: Any) -> bool:
    """The model: whether a place fits a path without `**`."""
    if len(place) != len(path):
        return False
    at = record
    for name, part in zip(place, path, strict=True):
        is_last = isinstance(at, list) and part == "-1" and name == len(at) - 1
        if not is_last and not fnmatchcase(str(name), part):
            return False
        at = at[name]
    return True


@given(RECORDS, st.lists(PARTS, min_size=1, max_size=3).map(tuple))
def test_all_places_that_fit_a_path_are_found(record: Any, path: tuple[str, ...]) -> None:
    expected = [value for place, value in places(record) if fits(place, path, record)]
    assert paths.values_at(record, path) == expected
    if len(expected) < 2:
        assert paths.value_at(record, path, "none") == (expected or ["none"])[0]
    else:
        with pytest.raises(paths.AmbiguousPath):
            paths.value_at(record, path)


@given(
    RECORDS,
    st.lists(PARTS.filter(lambda part: part != "-1"), max_size=2).map(tuple),
    st.lists(NAMES, max_size=1).map(tuple),
)
def test_two_stars_stand_for_any_number_of_parts(
    record: Any, before: tuple[str, ...], after: tuple[str, ...]
) -> None:
    found = paths.values_at(record, (*before, "**", *after))
    expected = [
        value
        for place, value in places(record)
        if len(place) >= len(before) + len(after)
        and fits(place, (*before, *["*"] * (len(place) - len(before) - len(after)), *after), record)
    ]
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


@given(RECORDS, st.lists(NAMES.filter(str.isalpha), min_size=1, max_size=3).map(tuple), VALUES)
def test_a_value_that_was_set_is_found_and_all_else_stays(
    record: dict[str, Any], path: tuple[str, ...], value: Any
) -> None:
    before = copy.deepcopy(record)
    try:
        paths.put(record, path, value)
    except paths.BlockedPath:
        return
    assert paths.value_at(record, path) == value
    paths.delete(record, path)
    kept = {name: each for name, each in record.items() if name != path[0]}
    assert kept == {name: each for name, each in before.items() if name != path[0]}


@given(RECORDS, st.lists(PARTS, min_size=1, max_size=3).map(tuple))
def test_what_fits_a_path_is_removed_or_null(record: Any, path: tuple[str, ...]) -> None:
    before = copy.deepcopy(record)
    paths.delete(record, path)
    gone = {place for place, _ in places(before) if fits(place, path, before)}
    for place, value in places(before):
        if not any(place[: len(each)] == each for each in gone) and not isinstance(
            value, dict | list
        ):
            assert paths.value_at_names(record, [str(part) for part in place]) == value
    for place in gone:
        found = paths.value_at_names(record, [str(part) for part in place])
        assert found is paths.MISSING or found is None


@pytest.mark.parametrize(
    ("record", "path", "left"),
    [
        ({"a": [1, 2, 3]}, ["a", "2"], {"a": [1, 2]}),
        ({"a": [1, 2, 3]}, ["a", "0"], {"a": [None, 2, 3]}),
        ({"a": [1, 2, 3]}, ["a", "-1"], {"a": [1, 2]}),
        ({"a": [1, 2, 3]}, ["a", "*"], {"a": [None, None]}),
        ({"a": [{"b": 1}, {"b": 2, "c": 3}]}, ["a", "*", "b"], {"a": [{}, {"c": 3}]}),
        ({"a": 1, "b": {"c": 2}}, ["**"], {}),
        ({"a": {"x": 1}, "b": {"x": 2, "y": 3}}, ["**", "x"], {"a": {}, "b": {"y": 3}}),
        ({"a": 1}, ["b", "c"], {"a": 1}),
        ({"a[0]": 1, "a0": 2}, ["a[0]"], {}),
    ],
)
def test_values_are_removed(record: Any, path: list[str], left: Any) -> None:
    paths.delete(record, path)
    assert record == left


def test_a_condition_removes_plain_values_wherever_they_are() -> None:
    record = {"a": "", "b": {"c": "", "d": 1}, "e": ["", 2], "f": {}}
    paths.delete(record, ["a"], lambda value: value == "")
    assert record == {"b": {"d": 1}, "e": [None, 2], "f": {}}


@pytest.mark.parametrize(
    ("record", "path", "found"),
    [
        ({}, ["a"], {"a": 1}),
        ({}, ["a", "b"], {"a": {"b": 1}}),
        ({"a": None}, ["a", "b"], {"a": {"b": 1}}),
        ({}, ["a", "2"], {"a": [None, None, 1]}),
        ({"a": ["x"]}, ["a", "2"], {"a": ["x", None, 1]}),
        ({"a": [{"x": 1}]}, ["a", "0", "b"], {"a": [{"x": 1, "b": 1}]}),
        ({"a*": {}}, ["a*", "b"], {"a*": {"b": 1}}),
    ],
)
def test_values_are_set_with_all_that_is_missing(record: Any, path: list[str], found: Any) -> None:
    paths.put(record, path, 1)
    assert record == found


@pytest.mark.parametrize(("record", "path"), [({"a": 5}, ["a", "b"]), ({"a": [1]}, ["a", "b"])])
def test_a_plain_value_on_the_way_blocks_the_path(record: Any, path: list[str]) -> None:
    with pytest.raises(paths.BlockedPath):
        paths.put(record, path, 1)


def test_two_stars_twice_are_refused() -> None:
    with pytest.raises(paths.AmbiguousPath):
        paths.values_at({"a": {"b": 1}}, ["**", "a", "**"])
