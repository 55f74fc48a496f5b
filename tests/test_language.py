"""The sources are in plain English, as far as a program can tell."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import language
from tests.language import REPOSITORY, findings, sources

TESTS = sorted(
    set((REPOSITORY / "tests").rglob("*.py")) - {Path(__file__), Path(language.__file__)}
)
DOCUMENTS = [path for path in sources() if path.suffix == ".md"]


def test_no_docstring_is_a_fragment_and_no_idiom_is_used() -> None:
    found = [line for path in sources() for line in findings(path)]
    assert not found, "\n".join(found)


def test_no_docstring_of_a_test_is_a_fragment() -> None:
    found = [line for path in TESTS for line in findings(path)]
    assert not [line for line in found if "docstring" in line or "summary" in line]


def test_names_in_tests_are_plain_english() -> None:
    idiom = re.compile(r"(?<![A-Za-z\"])(told|said|begun|amiss|heed)(?![A-Za-z])")
    for path in TESTS:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            assert not idiom.search(line), f"{path.relative_to(REPOSITORY)}:{number}: {line}"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('"""Return the rows."""', []),
        ('"""Of a run that has ended."""', ["begins with 'Of'"]),
        ('def f():\n    """\n    Raises:\n        E: x.\n    """', ["without a summary"]),
        ('A = 1\n"""The rows of a table"""', ["without an end"]),
        ('"""the rows."""', ["begin with a capital"]),
        ("x = 'it is told'", ["the word 'told'"]),
        ("told_rows = 1", ["the name told_rows"]),
        ('x = "unfolded"', []),
    ],
)
def test_fragments_and_idioms_are_found(tmp_path: Path, source: str, found: list[str]) -> None:
    path = tmp_path / "module.py"
    path.write_text(source)
    lines = list(findings(path))
    assert len(lines) == len(found), lines
    assert all(expected in line for expected, line in zip(found, lines, strict=True))


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_column_of_a_table_has_a_heading(path: Path) -> None:
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines):
        if re.fullmatch(r"\|(\s*:?-+:?\s*\|)+", line):
            headings = [cell.strip() for cell in lines[number - 1].strip("|").split("|")]
            assert all(headings), f"{path.name}:{number}: {lines[number - 1]}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_the_target_of_every_link_exists(path: Path) -> None:
    text = path.read_text()
    for target in re.findall(r"\]\(([^)#\s]*)(?:#[^)]*)?\)", text):
        if target and "://" not in target:
            assert (path.parent / target).exists(), f"{path.relative_to(REPOSITORY)}: {target}"
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)]*)\)", text):
        if "://" not in target:
            document = path.parent / target if target else path
            assert anchor in _anchors(document), f"{path.name}: {target}#{anchor}"


def _anchors(document: Path) -> set[str]:
    """The anchors of a document's headings, as code hosts make them."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(), flags=re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
    return set(plain)
