"""Names that every engine accepts."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elt_assets.lake.columns.names import LONGEST, clean, column_names, table_name

RESERVED = r"(?i)_airbyte_|_elt_|_delta_log|_valid_from|_valid_to|_is_current"


@pytest.mark.spec("protocol.55")
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
def test_other_characters_than_letters_and_digits_become_underscores(
    name: str, expected: str
) -> None:
    assert clean(name) == expected


def test_different_long_names_stay_different() -> None:
    one, other = "ä" * 300, "ä" * 299 + "b"
    assert clean(one) != clean(other)
    assert len(clean(one).encode()) <= LONGEST


@given(st.text())
def test_a_clean_name_is_valid_and_cleaning_is_idempotent(name: str) -> None:
    cleaned = clean(name)
    assert re.fullmatch(r"\w+", cleaned)
    assert len(cleaned.encode()) <= LONGEST
    assert clean(cleaned) == cleaned


# Columns

fields = st.text(max_size=4) | st.sampled_from(
    [
        *(
            "id",
            "ID",
            "a b",
            "a-b",
            "a_b",
            "straße",
            "STRASSE",
            "",
            "_",
            "x" * 300,
            "x" * 299 + " ",
        ),
        *("_airbyte_raw_id", "_AIRBYTE_x", "_elt_partition", "_is_current", "../../etc/passwd"),
    ]
)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["id", "name"], ["id", "name"]),
        (["a b", "a_b"], ["a_b_c8687a08", "a_b"]),  # its own cleaned form goes first
        (["a b", "a-b"], ["a_b", r"a_b_\w{8}"]),
        (["id", "ID"], ["id", r"ID_\w{8}"]),
        (["straße", "STRASSE"], ["straße", r"STRASSE_\w{8}"]),
        (["", "_"], [r"__\w{8}", "_"]),
        (["_airbyte_raw_id"], [r"x_airbyte_raw_id_\w{8}"]),
        (["_AIRBYTE_x"], [r"x_AIRBYTE_x_\w{8}"]),
        (["_is_current"], [r"x_is_current_\w{8}"]),
    ],
)
def test_colliding_names_get_a_hash_except_for_one(names: list[str], expected: list[str]) -> None:
    found = column_names(names)
    for name, pattern in zip(names, expected, strict=True):
        assert re.fullmatch(pattern, found[name])


def test_the_hash_depends_only_on_the_name_in_the_source() -> None:
    assert column_names(["a_b", "a-b"])["a-b"] == column_names(["x", "a-b", "a_b"])["a-b"]


def test_column_names_of_a_table_are_kept_when_fields_are_added() -> None:
    known = {"a b": "a_b", "gone": "id"}
    found = column_names(["a_b", "a b", "ID"], known)
    assert found["a b"] == "a_b"
    assert found["a_b"] != "a_b" and re.fullmatch(r"a_b_\w{8}", found["a_b"])
    assert re.fullmatch(
        r"ID_\w{8}", found["ID"]
    )  # that of a field that is no more is not given away


@given(st.lists(fields, unique=True), st.lists(fields, unique=True))
def test_column_names_are_valid_unique_and_stable(first: list[str], second: list[str]) -> None:
    known = column_names(first)
    found = column_names(second, known)
    assert list(found) == second
    assert all(found[name] == known[name] for name in second if name in known)
    every = {**known, **found}
    assert len({column.casefold() for column in every.values()}) == len(every)
    for column in every.values():
        assert re.fullmatch(r"\w+", column)
        assert len(column.encode()) <= LONGEST
        assert not re.match(RESERVED, column)
    assert column_names(first + second, every) == {name: every[name] for name in first + second}


# Tables


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("users", "users"),
        ("_delta_log", r"x_delta_log_\w{8}"),
        ("_Delta_Log", r"x_Delta_Log_\w{8}"),
        ("_elt_x", r"x_elt_x_\w{8}"),
        ("_airbyte_raw_users", r"x_airbyte_raw_users_\w{8}"),
        ("_valid_from", "_valid_from"),  # a column's name only
        ("../../etc", "______etc"),
        ("", "_"),
    ],
)
def test_a_table_name_is_never_a_reserved_name(name: str, expected: str) -> None:
    assert re.fullmatch(expected, table_name(name))


@pytest.mark.spec("protocol.53", "airbyte.14")
@given(fields)
def test_any_stream_name_gives_a_valid_table_name(name: str) -> None:
    found = table_name(name)
    assert re.fullmatch(r"\w+", found) and len(found.encode()) <= LONGEST
    assert not re.match(r"(?i)_airbyte_|_elt_|_delta_log", found)
    assert table_name(found) == found
