"""Measures how much code there is, and how it is cut: `python scripts/code_size.py`.

A line of code is neither blank, nor a comment, nor a part of a docstring. For each folder of `elt_assets` and
`connectors`, and for the other packages, code_size.json has the lines, the median of a module's lines
(without `__init__.py`), the share of imports in percent, the number of functions with more than six
parameters, and the number of imports from inner modules of Dagster, which any release of it may change. The
median may only rise, and all others only fall: `--check` fails otherwise, and `--record` writes the present
figures. A commit that adds a feature records its lines, and says why.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
RECORD = Path(__file__).with_suffix(".json")
PACKAGES = ("elt_assets", "connectors", "tests", "benchmarks", "examples")
MOST_PARAMETERS = 6
"""A function with more is counted. `self` and `cls` are left out."""
_INNER = re.compile(r"dagster(_shared\b|(_\w+)?\._|\.(?!components$))")
"""Matches modules of Dagster whose names its packages do not export."""
_FIGURES = (
    ("{} lines of code, and {} are recorded", False),
    ("a median of {} lines in a module, and {} is recorded", True),
    ("{} % imports, and {} % are recorded", False),
    ("{} functions with more than six parameters, and {} are recorded", False),
    ("{} imports from inner modules of Dagster, and {} are recorded", False),
)
"""What each figure of a folder says, and whether it may rise (or else fall)."""
_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Module:
    """A file of code.

    Attributes:
        lines: the number of its lines of code.
        imports: how many of these are imports.
        helpers: the names of its private functions and methods.
        functions: the number of all its functions and methods.
        crowded: the number of those with more than six parameters.
        inner_imports: the number of its imports from inner modules of Dagster.
        uses: how often each name is used in it, definitions left out.
    """

    path: Path
    lines: int
    imports: int
    helpers: Sequence[str]
    functions: int
    crowded: int
    inner_imports: int
    uses: Mapping[str, int]


def read_module(path: Path) -> Module:
    """Return what is in a file."""
    text = path.read_text()
    nodes = list(ast.walk(ast.parse(text)))
    lines = enumerate(map(str.strip, text.splitlines()), 1)
    code = {number for number, line in lines if line and not line.startswith("#")}
    documents = [
        node.body[0]
        for node in nodes
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None
    ]
    code -= _list_lines(documents)
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    crowded = sum(_count_parameters(node.args) > MOST_PARAMETERS for node in functions)
    inner = sum(
        isinstance(node, ast.ImportFrom) and _INNER.match(node.module or "") is not None
        for node in nodes
    )
    helpers = [node.name for node in functions]
    helpers = [name for name in helpers if name.startswith("_") and not name.endswith("__")]
    names = [node.id for node in nodes if isinstance(node, ast.Name)]
    uses = Counter(names + [node.attr for node in nodes if isinstance(node, ast.Attribute)])
    size = len(_list_lines(imports))
    return Module(path, len(code), size, helpers, len(functions), crowded, inner, uses)


def _count_parameters(arguments: ast.arguments) -> int:
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def _list_lines(nodes: Sequence[ast.stmt]) -> set[int]:
    return {
        line for node in nodes for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def read_folders(repository: Path = REPOSITORY) -> dict[str, list[Module]]:
    """Return the modules of each folder that has limits of its own, and of each package."""
    folders: defaultdict[str, list[Module]] = defaultdict(list)
    for package in PACKAGES:
        root = repository / package
        for path in sorted(root.rglob("*.py")):
            parts = path.relative_to(repository).parts
            if parts[:2] == ("elt_assets", "defs"):
                continue  # what users put there is theirs
            module = read_module(path)
            folders[package].append(module)
            if package in ("elt_assets", "connectors") and len(parts) > 2:
                folders["/".join(parts[:2])].append(module)
    return dict(sorted(folders.items()))


def measure(modules: Sequence[Module]) -> tuple[float, ...]:
    """Return the figures of a folder, in the order of `_FIGURES`."""
    lines = sum(module.lines for module in modules)
    sizes = [module.lines for module in modules if module.path.name != "__init__.py"]
    imports = sum(module.imports for module in modules)
    share = round(100 * imports / max(lines, 1), 1)
    crowded = sum(module.crowded for module in modules)
    inner = sum(module.inner_imports for module in modules)
    return lines, statistics.median(sizes or [0]), share, crowded, inner


def list_worse(
    folders: Mapping[str, Sequence[Module]], recorded: Mapping[str, Sequence[float]]
) -> Iterator[str]:
    """Yield a line for each figure of a folder that is worse than the recorded one."""
    for folder, modules in folders.items():
        if folder not in recorded:
            yield f"{folder}: is not in {RECORD.name}"
            continue
        figures = zip(_FIGURES, measure(modules), recorded[folder], strict=True)
        for (text, may_rise), figure, limit in figures:
            if figure < limit if may_rise else figure > limit:
                yield f"{folder}: {text.format(figure, limit)}"


def describe(folder: str, modules: Sequence[Module]) -> str:
    lines, median, share, crowded, inner = measure(modules)
    helpers = [(module, name) for module in modules for name in module.helpers]
    functions = sum(module.functions for module in modules)
    single = sum(module.uses.get(name, 0) == 1 for module, name in helpers)
    return (
        f"{folder:32} {len(modules):5} {lines:8,} {median:7.0f} {share:8.1f}"
        f" {100 * len(helpers) / max(functions, 1):9.0f} {100 * single / max(len(helpers), 1):9.0f}"
        f" {crowded:8} {inner:6}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--record", action="store_true")
    arguments = parser.parse_args()
    if arguments.record:
        figures = {folder: measure(modules) for folder, modules in read_folders().items()}
        rows = [
            f"  {json.dumps(folder)}: {json.dumps(figure)}" for folder, figure in figures.items()
        ]
        RECORD.write_text("{\n" + ",\n".join(rows) + "\n}\n")
        return 0
    if arguments.check:
        problems = list(list_worse(read_folders(), json.loads(RECORD.read_text())))
        for problem in problems:
            print(problem)
        if problems:
            print(f"mend them; what a feature needs: python scripts/{Path(__file__).name} --record")
        return min(len(problems), 1)
    print(f"{'folder':32} {'files':>5} {'lines':>8} {'median':>7} {'imports%':>8}", end="")
    print(f" {'private%':>9} {'1caller%':>9} {'crowded':>8} {'inner':>6}")
    for folder, modules in read_folders().items():
        print(describe(folder, modules))
    return 0


if __name__ == "__main__":
    sys.exit(main())
