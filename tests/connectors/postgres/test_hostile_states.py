"""A state is data: none of its parts becomes SQL but as the number or the text that it must be."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from connectors.postgres.dialect import quote_text
from connectors.postgres.position import build_new_rows_condition, load_position
from connectors.postgres.snapshot import Snapshot
from elt_assets.errors import ConfigError

SQL = "0)'::tid OR pg_sleep(9) IS NULL --"
GOOD: dict[str, Any] = {
    "form": 1,
    "xmin": 700,
    "complete": False,
    "system": "7123:16",
    "files": {"16384": 16384},
    "pages": {"16384": 3, "16385": None},
    "cursor": {"field": "at", "value": "2026-01-01"},
}
SNAPSHOT = Snapshot("s", 700, 705, "700:705:", 1, 0.0, 160000, 8192, "7123:16")


def change_state(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    state = copy.deepcopy(GOOD)
    inner = state
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return state


def test_a_state_of_this_source_is_loaded() -> None:
    assert load_position(GOOD, SNAPSHOT).to_state() == GOOD


@pytest.mark.parametrize("value", [SQL, "3", 3.5, True, -1, 1 << 70, [3], {"a": 1}])
@pytest.mark.parametrize("path", [("xmin",), ("files", "16384"), ("pages", "16384")])
def test_a_part_that_is_no_number_is_refused(path: tuple[str, ...], value: Any) -> None:
    with pytest.raises(ConfigError, match="not of this source") as refused:
        load_position(change_state(path, value), SNAPSHOT)
    assert "pg_sleep" not in str(refused.value)


@pytest.mark.parametrize("value", [7, True, ["a"], {"a": 1}, "a\0b"])
@pytest.mark.parametrize("path", [("system",), ("cursor", "field"), ("cursor", "value")])
def test_a_part_that_is_no_text_is_refused(path: tuple[str, ...], value: Any) -> None:
    with pytest.raises(ConfigError, match="not of this source"):
        load_position(change_state(path, value), SNAPSHOT)


@pytest.mark.parametrize("place", ["files", "pages"])
@pytest.mark.parametrize("name", [SQL, "", "1.5"])
def test_a_table_that_is_no_number_is_refused(place: str, name: str) -> None:
    with pytest.raises(ConfigError, match="not of this source"):
        load_position(change_state((place,), {name: 1}), SNAPSHOT)


def test_a_text_of_a_state_is_a_literal() -> None:
    position = load_position(change_state(("cursor", "value"), SQL + "\\' $$"), SNAPSHOT)
    assert quote_text(str(position.cursor)) == r"E'0)''::tid OR pg_sleep(9) IS NULL --\\'' $$'"
    assert "7" in build_new_rows_condition(position.least, SNAPSHOT)
