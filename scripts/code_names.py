"""Counts the names that say nothing: values such as `found`, and functions that are named by no verb.

`python scripts/code_names.py` fails where a folder has more of them than code_names.json allows, as `[values,
functions]`. These figures may only fall: `--lower` writes those that did. A folder as the argument lists its
names.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

KINDS = ("vague values", "functions without a verb")
REPOSITORY = Path(__file__).parent.parent
LIMITS = Path(__file__).with_suffix(".json")
VAGUE = frozenset(
    ["at", "each", "found", "given", "kept", "known", "now", "one", "shown", "wanted", "written"]
)
NO_VERB = re.compile(
    r"_*(?!(bring|embed|exceed|feed|need|ping|proceed|seed|speed|string)(_|$))"
    r"([a-z]{2,}(ed|ing)|at|before|begun|beside|between|beyond|bound|built|by|chosen|done|drawn|for|found|given"
    r"|gone|held|in|kept|known|left|lost|made|met|of|said|seen|sent|shown|sought|taken|told|understood|until"
    r"|with|within|without|worn|written)(_|$)"
)
"""Matches the name of a function whose first word is a participle or a preposition."""
USED_AS_VALUE = re.compile("property|fixture|setter")
"""Finds the decorators of functions that are named as values are."""


def vague_values(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Return the line and the name of each variable, parameter and attribute that says nothing."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.Name(id=name, ctx=ast.Store())
                | ast.Attribute(attr=name, ctx=ast.Store())
                | ast.arg(arg=name)
                | ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
            ) if name.strip("_").lower() in VAGUE:
                yield node.lineno, name


def functions_without_verb(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Return the line and the name of each function that is named by a participle or a preposition."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() if NO_VERB.match(node.name):
                if not any(USED_AS_VALUE.search(ast.unparse(item)) for item in node.decorator_list):
                    yield node.lineno, node.name


def names_by_room() -> dict[str, tuple[list[str], list[str]]]:
    """Return what is to be renamed in each folder: its values, and its functions."""
    rooms: dict[str, tuple[list[str], list[str]]] = {}
    for package in ("elt_assets", "connectors", "tests", "benchmarks", "examples"):
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            file = path.relative_to(REPOSITORY)
            if file.parts[:2] != ("elt_assets", "defs"):  # what users put there is theirs
                tree = ast.parse(path.read_text(encoding="utf-8"))
                values, functions = rooms.setdefault("/".join(file.parent.parts[:2]), ([], []))
                values += [f"{file}:{line}: {name}" for line, name in vague_values(tree)]
                functions += [
                    f"{file}:{line}: {name}" for line, name in functions_without_verb(tree)
                ]
    return rooms


def main(arguments: list[str]) -> int:
    rooms = names_by_room()
    counts = {room: [len(values), len(functions)] for room, (values, functions) in rooms.items()}
    limits = json.loads(LIMITS.read_text())
    if arguments == ["--lower"]:
        for room, numbers in counts.items():
            limits[room] = [
                min(pair) for pair in zip(numbers, limits.get(room, numbers), strict=True)
            ]
        rows = [f"{json.dumps(room)}: {limits[room]}" for room in sorted(counts)]
        LIMITS.write_text("{\n" + ",\n".join(rows) + "\n}\n")
        return 0
    for room in arguments:
        print(*(name for names in rooms[room] for name in names), sep="\n")
    excess = [
        f"{room} has {number} {kind}, {limit} are allowed: see `python scripts/code_names.py {room}`"
        for room, numbers in counts.items()
        for kind, number, limit in zip(KINDS, numbers, limits.get(room, [0, 0]), strict=True)
        if number > limit
    ]
    for line in excess:
        print(line)
    return 1 if excess else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
