"""Writes docs/modules.md: what each module of `elt_assets` is, and which modules use it.

`python scripts/module_users.py` writes the document; with `--check`, it fails unless the document is up to
date. The sentence is the first paragraph of the module's docstring. Who uses a module is taken from the
imports, also those within functions, and from its name in a text of the code or of a file of settings. A name
that a package passes on is followed to the module that defines it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
DOCUMENT = REPOSITORY / "docs" / "modules.md"
ROOT = "elt_assets"
MOST_NAMES = 3
"""A package with more users than this is named with their number."""
SETTINGS = ("pyproject.toml", "dagster_home/dagster.yaml", "workspace.yaml")
_HEAD = """# Modules

Each module of `elt_assets`, what it is, and which modules use it. For developers:
[architecture.md](architecture.md) says which one to open for a change, and how they work together. A name
without a package is of the same package, and `read (4)` stands for four modules of the package `read`.
`scripts/module_users.py` writes this page from the imports, and names in settings.
"""
_TABLE = "| module | what it is | used by |\n|---|---|---|"


def list_modules() -> dict[str, Path]:
    """Return the files of all modules by their names, tests and benchmarks left out."""
    paths = [path for root in (ROOT, "connectors") for path in (REPOSITORY / root).rglob("*.py")]
    return {
        ".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sorted([*paths, REPOSITORY / "pyspark_elt.py"])
    }


def list_imports(name: str, path: Path, modules: Mapping[str, Path]) -> Iterator[tuple[str, str]]:
    """Yield what a module imports: the module, and the name in it; "" is the module itself."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    tree = ast.parse(path.read_text())
    documents = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    for node in ast.walk(tree):
        if id(node) in documents:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *filter(None, [base])])
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                if inner in modules:
                    yield inner, ""
                elif base in modules:
                    yield base, alias.name
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from ((named, "") for named in list_named(node.value, modules))


def list_named(text: str, modules: Mapping[str, Path]) -> Iterator[str]:
    """Yield the modules that a text names whole."""
    if ROOT in text and "\n" not in text:
        yield from (
            name for name in re.findall(rf"\b{ROOT}(?:\.[a-z_]+)+", text) if name in modules
        )


def find_named_users(modules: Mapping[str, Path]) -> dict[str, set[str]]:
    """Return the users that name a module in settings, and the entry of the commands."""
    users: dict[str, set[str]] = defaultdict(set)
    for file in SETTINGS:
        lines = (REPOSITORY / file).read_text().splitlines()
        # Other lines of pyproject.toml are rules for imports.
        for line in (line for line in lines if re.search(r"\w:\w|module: ", line)):
            for target in list_named(line, modules):
                users[target].add(file)
    for name in modules:
        if name.rpartition(".")[0] == f"{ROOT}.cli.commands":  # found by the name of the command
            users[name].add(f"{ROOT}.cli.entry")
    return users


def find_users(modules: Mapping[str, Path]) -> dict[str, set[str]]:
    """Return which modules use each module."""
    imports = {name: list(list_imports(name, path, modules)) for name, path in modules.items()}
    passed_on = {
        (name, imported): module
        for name, path in modules.items()
        if path.name == "__init__.py"
        for module, imported in imports[name]
        if imported
    }
    users = find_named_users(modules)
    for (name, imported), target in passed_on.items():
        if imported in ("main", "command"):  # what a name in settings stands for
            users[target] |= users[name]
    for name, path in modules.items():
        for module, imported in imports[name]:
            target = module
            while (target, imported) in passed_on:
                target = passed_on[target, imported]
            is_passed_on = (
                path.name == "__init__.py" and target.startswith(f"{name}.") and bool(imported)
            )
            is_passed_on &= name != ROOT  # what this one passes on is public
            if target != name and not is_passed_on:
                users[target].add(name)
    return users


def describe_users(users: Iterable[str], package: str) -> str:
    """Return the users of a module of a package: those of this package first."""
    by_package: dict[str, list[str]] = defaultdict(list)
    for user in sorted(users):
        if user in SETTINGS:
            by_package["~"].append(user)
        elif user.startswith("connectors"):
            by_package["~~"] = ["connectors"]
        else:
            by_package[user.rpartition(".")[0]].append(user)
    own = [f"`{user.rpartition('.')[2]}`" for user in by_package.pop(package, ())]
    others = []
    for other, names in sorted(by_package.items()):
        short = [f"`{name.removeprefix(f'{ROOT}.')}`" for name in names]
        is_long = len(names) > MOST_NAMES
        others += [f"`{other.removeprefix(f'{ROOT}.')}` ({len(names)})"] if is_long else short
    return ", ".join([*own, *others])


def write_document() -> str:
    """Return the document."""
    modules = list_modules()
    users = find_users(modules)
    packages: dict[str, list[str]] = defaultdict(list)
    for name, path in modules.items():
        if name.startswith(ROOT):
            is_package = path.name == "__init__.py"
            packages[name if is_package else name.rpartition(".")[0]].append(name)
    parts = [_HEAD]
    for package, names in packages.items():
        lines = []
        for name in names:
            document = ast.get_docstring(ast.parse(modules[name].read_text())) or ""
            sentence = " ".join(document.split("\n\n")[0].split())
            used = describe_users(users[name], package)
            short = "" if name == package else name.rpartition(".")[2]
            if short or used:
                title = f"`{short}`" if short else "the package itself"
                lines.append(f"| {title} | {sentence} | {used} |")
        if lines:
            head = f"## {package.removeprefix(f'{ROOT}.')}\n"
            parts.append("\n".join([head, _TABLE, *lines]) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    document = write_document()
    if "--check" in sys.argv:
        if not DOCUMENT.exists() or DOCUMENT.read_text() != document:
            sys.exit("docs/modules.md is not up to date: run `python scripts/module_users.py`")
    else:
        DOCUMENT.write_text(document)
