"""Finds what is not plain English in the sources: fragments for docstrings, and words of a private idiom.

`python -m tests.language [FILE ...]` prints what it finds in Python files and Markdown; by default in all.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent

FRAGMENTS = frozenset(
    """about after against also among and as at because before beside between beyond but by else for from had
    has have how however if in into is it its like not of on once or out so such than that their them then
    there these they this those though to under until upon was were what when where whether which while who
    whom whose with within without yet""".split()  # noqa: SIM905 - as a list it has sixty lines
)
"""First words of a docstring that show that it is a fragment, or says something of something that it does not
name: "Of a run that ...", "Whether ...", "What ..."."""

WORDS = (
    "told",
    "begun",
    "anew",
    "in hand",
    "as ever",
    "nobody",
    "mend",
    "mends",
    "mended",
    "amiss",
    "heed",
)
"""Words that a reader of English as a second language does not meet in documentation."""
_WORDS = re.compile(rf"(?<![A-Za-z])({'|'.join(WORDS)})(?![A-Za-z])", re.IGNORECASE)
_ANYWHERE = re.compile(rf"(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z]))(?i:{'|'.join(WORDS)})(?![a-z])")
"""Finds a text that may use a word: to read its tokens, one by one, takes ten times as long."""
_IN_NAMES = frozenset({"told", "begun", "anew", "nobody", "mend", "mended", "amiss", "heed"})

_JSON_KEYS = frozenset({'"told"'})
"""Keys of documents that users' programs read; they stay as they are."""

_END = (".", ":", "?", "!", "…", '"')


def findings(path: Path) -> Iterator[str]:
    """Everything that is not plain English in a file, as `path:line: what`."""
    text = path.read_text(encoding="utf-8")
    found = _in_python(text) if path.suffix == ".py" else _in_prose(text)
    for line, what in sorted(set(found)):
        yield f"{path}:{line}: {what}"


def sources() -> list[Path]:
    """All files whose language is looked at."""
    folders = ("elt_assets", "connectors", "docs")
    files = [file for folder in folders for file in sorted((REPOSITORY / folder).rglob("*"))]
    return [
        REPOSITORY / "README.md",
        *(file for file in files if file.suffix in (".py", ".md") and "/defs/" not in str(file)),
    ]


def _in_python(text: str) -> Iterator[tuple[int, str]]:
    tree = ast.parse(text)
    docstrings = list(_docstrings(tree))
    for node in docstrings:
        assert isinstance(node.value, str)
        yield from ((node.lineno, what) for what in _summary(node.value))
    if not _ANYWHERE.search(text):
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.string in _JSON_KEYS:
            continue
        if token.type in (tokenize.STRING, tokenize.COMMENT):
            yield from _words(token.string, token.start[0])
        elif token.type == tokenize.NAME and _IN_NAMES & set(_parts(token.string)):
            yield token.start[0], f"the name {token.string}"


def _docstrings(tree: ast.AST) -> Iterator[ast.Constant]:
    """The docstrings of modules, classes, functions and attributes."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list) or isinstance(node, (ast.If, ast.For, ast.With, ast.Try)):
            continue
        for statement in body:
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value


def _summary(docstring: str) -> Iterator[str]:
    lines = docstring.strip("\n").split("\n")
    paragraph = docstring.strip().split("\n\n")[0]
    first = lines[0].strip()
    word = re.match(r"[A-Za-z]+", first)
    if not first or first in ("Args:", "Raises:", "Returns:") or docstring.startswith("\n"):
        yield "a docstring without a summary"
    elif word is not None and word[0].lower() in FRAGMENTS:
        yield f"a docstring that begins with {word[0]!r}: {first[:60]}"
    elif not paragraph.strip().endswith(_END):
        yield f"a summary without an end: {paragraph.strip()[-60:]}"
    elif first[0].isalpha() and first[0].islower():
        yield f"a summary that does not begin with a capital: {first[:60]}"


def _in_prose(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.split("\n"), 1):
        yield from _words(line, number)


def _words(text: str, first_line: int) -> Iterator[tuple[int, str]]:
    for match in _WORDS.finditer(text):
        yield first_line + text.count("\n", 0, match.start()), f"the word {match[0]!r}"


def _parts(name: str) -> Sequence[str]:
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower().split("_")


def main() -> int:
    files = [Path(name) for name in sys.argv[1:]] or sources()
    found = [line for file in files for line in findings(file)]
    print("\n".join([*found, f"{len(found)} found"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
