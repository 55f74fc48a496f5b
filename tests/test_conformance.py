"""Each statement of docs/conformance.md names the tests that `@pytest.mark.spec` gives its id.

`python -m tests.test_conformance` writes these names into the document.
"""

from __future__ import annotations

import ast
import re

import pytest

from tests.support.project import REPOSITORY

pytestmark = pytest.mark.unit

DOCUMENT = REPOSITORY / "docs" / "conformance.md"
ROW = re.compile(r"^(\| (\w+\.\d+) \| .* \| )[^|]*\|$", re.MULTILINE)


def names_of_tests() -> dict[str, list[str]]:
    """Return the names of the tests of each statement, by its id."""
    tests: dict[str, list[str]] = {}
    for path in sorted((REPOSITORY / "tests").rglob("test_*.py")):
        text = path.read_text()
        for function in ast.parse(text).body if "mark.spec(" in text else ():
            for decorator in getattr(function, "decorator_list", ()):
                if ast.unparse(decorator).startswith("pytest.mark.spec("):
                    name = f"`{path.relative_to(REPOSITORY)}::{getattr(function, 'name', '')}`"
                    for statement in decorator.args:
                        tests.setdefault(ast.literal_eval(statement), []).append(name)
    return tests


def document() -> str:
    """Return the document with the tests of each statement in the last column."""
    text, tests = DOCUMENT.read_text(), names_of_tests()
    statements = [row[2] for row in ROW.finditer(text)]
    assert len(statements) == len(set(statements)) > 200
    assert tests.keys() <= set(statements), sorted(tests.keys() - set(statements))
    return ROW.sub(lambda row: f"{row[1]}{', '.join(tests.get(row[2], ['none']))} |", text)


def test_each_statement_names_its_tests() -> None:
    assert DOCUMENT.read_text() == document(), "run `python -m tests.test_conformance`"


def test_each_statement_is_done_in_files_that_exist() -> None:
    for row in ROW.finditer(DOCUMENT.read_text()):
        *_, done, where, _ = re.split(r" ?\| ?", row[1])
        assert re.match(r"yes|partial: \S|no", done), row[2]
        files = re.findall(r"`((?:elt_assets|connectors)/\S+)`", where)
        assert files and all((REPOSITORY / file).is_file() for file in files), row[2]


if __name__ == "__main__":
    DOCUMENT.write_text(document())
