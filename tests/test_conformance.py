"""All that docs/conformance.md names exists."""

from __future__ import annotations

import re
from functools import cache

import pytest

from tests.project import REPOSITORY

DOCUMENT = (REPOSITORY / "docs" / "conformance.md").read_text()
NAMED = sorted(set(re.findall(r"`((?:elt_assets|connectors|tests)/[^`]+)`", DOCUMENT)))
HEADER = "| statement | done | where | test |"


@cache
def _functions(path: str) -> frozenset[str]:
    text = (REPOSITORY / path).read_text()
    return frozenset(re.findall(r"^def (\w+)\(", text, flags=re.MULTILINE))


def _rows() -> list[list[str]]:
    lines = [line for line in DOCUMENT.splitlines() if line.startswith("| ") and line != HEADER]
    return [re.split(r" \| ", line.strip("| ")) for line in lines]


@pytest.mark.parametrize("name", NAMED)
def test_each_file_and_each_test_exists(name: str) -> None:
    path, _, function = name.partition("::")
    assert (REPOSITORY / path).is_file()
    assert not function or function in _functions(path)


def test_each_statement_has_a_status_a_place_and_tests() -> None:
    rows = _rows()
    assert len(rows) > 200
    for statement, done, where, tests in rows:
        assert re.match(r"yes|partial: \S|no", done), statement
        assert re.fullmatch(r"(`(elt_assets|connectors)/\S+`(, )?)+", where), statement
        assert tests == "none" or re.fullmatch(r"(`tests/\S+::test_\w+`(, )?)+", tests), statement


def test_the_readme_links_to_the_document() -> None:
    assert "(docs/conformance.md)" in (REPOSITORY / "README.md").read_text()
