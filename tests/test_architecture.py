"""The rooms and their doors: who may import whom, read from the source without running it.

Correct a violation at the import, or edit the tables below, where a review sees it.
"""

from __future__ import annotations

import ast
import graphlib
import importlib.util
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("elt_assets", "connectors")

IMPORTS = (ast.Import, ast.ImportFrom)

MAX_MODULES = 13
MAX_FUNCTION_LINES = 60

LAKE = ("schema", "spark", "delta", "parse", "merge", "write", "admin")
"""The rooms of the lake, from the ground up: each imports only what stands before it."""

# A room is a package or a module; it may import itself, what stands in its row, and what is within
# that; nothing else of ours. Everything first-party has a row: the longest name that fits. No room is
# named "elt_assets" on the right: its lazy names are for users.
ROOMS: dict[str, set[str]] = {
    # the ground
    "elt_assets.errors": set(),
    "elt_assets.failpoints": {"errors"},
    "elt_assets.machine_faults": {"errors"},
    "elt_assets.storage": {"errors", "machine_faults"},
    "elt_assets.paths": {"errors", "storage"},
    # the wire
    "elt_assets.protocol": {"errors", "protocol.airbyte"},
    "elt_assets.protocol.airbyte": {"errors"},
    "elt_assets.protocol.singer": {"errors", "protocol.airbyte"},
    "elt_assets.protocol.runs": {"errors", "protocol.airbyte", "protocol.singer"},
    # the two ends of the pipe, strangers to each other
    "elt_assets.runner.process": {"errors", "storage", "protocol"},
    "elt_assets.runner.config": {"errors", "storage", "protocol", "runner.process"},
    "elt_assets.runner": {"errors", "storage", "protocol", "runner.process", "runner.config"},
    "elt_assets.runner.kinds": {"errors", "storage", "protocol", "runner"},
    "elt_assets.sync.selection": {"protocol"},
    "elt_assets.sync.open_files": set(),
    "elt_assets.sync.segments": {"errors", "protocol", "sync.open_files"},
    "elt_assets.sync.events": {"protocol", "sync.segments"},
    "elt_assets.sync.states": {"errors", "protocol", "sync.events", "sync.selection"},
    "elt_assets.sync": {"errors", "failpoints", "protocol", "sync"},
    # what people write
    "elt_assets.connection": {
        *("errors", "paths", "protocol", "sync.selection"),
        *("runner.kinds", "runner.packages", "runner.process"),
    },
    # the tables
    **{
        f"elt_assets.lake.{room}": {
            *("errors", "failpoints", "machine_faults", "storage", "protocol", "sync"),
            *(f"lake.{lower}" for lower in LAKE[:place]),
            # the archive of classes is in the user's cache
            *(("paths",) if room == "spark" else ()),
        }
        for place, room in enumerate(LAKE)
    },
    "elt_assets.lake": set(),
    "elt_assets.telemetry": {"errors", "protocol", "sync.events"},
    # one sync, without Dagster
    "elt_assets.pipeline": {
        *(
            "errors",
            "machine_faults",
            "telemetry",
            "storage",
            "paths",
            "protocol",
            "runner",
            "sync",
            "connection",
            "lake",
        ),
    },
    # the assets
    "elt_assets.orchestration": {
        *(
            "errors",
            "failpoints",
            "machine_faults",
            "storage",
            "paths",
            "protocol",
            "runner",
            "sync",
            "connection",
            "lake",
            "pipeline",
        ),
    },
    # the programs
    "elt_assets.destination": {
        *(
            "errors",
            "machine_faults",
            "telemetry",
            "storage",
            "paths",
            "protocol",
            "runner.process",
            "sync",
        ),
        *("lake", "pipeline"),
    },
    "elt_assets.definitions": {"errors", "paths", "orchestration"},
    "elt_assets.cli": {
        *(
            "errors",
            "machine_faults",
            "paths",
            "protocol",
            "runner",
            "sync",
            "connection",
            "lake",
            "pipeline",
        ),
        "orchestration",
    },
    "elt_assets.defs": set(),
    # the public names, for type checkers; lazy at run time
    "elt_assets": {"orchestration", "pipeline"},
    # connectors meet elt_assets on a pipe, and share the wire with it
    "connectors": {"protocol", "errors"},
}

# Distributions that are kept to a few rooms; the others may be imported anywhere.
KEPT_TO: dict[str, tuple[str, ...]] = {
    "pyspark": ("elt_assets.lake", "elt_assets.orchestration.resources"),
    "deltalake": ("elt_assets.lake", "elt_assets.storage.location"),
    "dagster": ("elt_assets.orchestration", "elt_assets.definitions"),
    "dagster_pyspark": ("elt_assets.orchestration",),
    "httpx": ("connectors.sdk.http",),
    "openlineage": ("elt_assets.telemetry",),
    "opentelemetry": ("elt_assets.telemetry",),
    "requests": ("connectors.declarative",),
    "urllib3": ("connectors.declarative",),
}

# `import elt_assets.protocol`, all of it, loads none of these.
HEAVY = ("dagster", "deltalake", "pandas", "pyarrow", "pyspark")


@dataclass(frozen=True)
class Import:
    """One imported name, as the module or the attribute of a module that it is."""

    importer: str
    target: str
    line: int

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.target}"


@dataclass(frozen=True)
class Module:
    name: str
    path: Path

    @cached_property
    def source(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source, filename=str(self.path))

    @property
    def package(self) -> str:
        return self.name if self.path.stem == "__init__" else self.name.rpartition(".")[0]

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    def imports(self, within: ast.AST | None = None) -> Iterator[Import]:
        """Every import, those inside functions and TYPE_CHECKING included."""
        for node in self.nodes if within is None else ast.walk(within):
            if isinstance(node, ast.Import):
                for name in node.names:
                    yield Import(self.name, name.name, node.lineno)
            elif isinstance(node, ast.ImportFrom):
                relative = "." * node.level + (node.module or "")
                origin = importlib.util.resolve_name(relative, self.package)
                for name in node.names:
                    yield Import(self.name, f"{origin}.{name.name}", node.lineno)

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        for node in self.nodes:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield node


def test_every_module_is_listed() -> None:
    _none([name for name in MODULES if _is_unlisted(name)])


def test_packages_import_only_allowed_packages() -> None:
    _none([str(found) for found in _first_party() if not _allowed(found)])


@pytest.mark.parametrize(
    ("importer", "target"),
    [
        ("elt_assets.sync.session", "elt_assets.runner.process.child"),
        ("elt_assets.runner.process.child", "elt_assets.sync.session"),
        ("elt_assets.lake.write.writer", "elt_assets.orchestration.assets.build"),
        ("elt_assets.protocol.airbyte.codec", "elt_assets.lake"),
        ("elt_assets.runner.connector", "connectors.sdk"),
        ("elt_assets.lake.write.writer", "elt_assets"),
        ("connectors.faker", "elt_assets.runner.process.child"),
    ],
)
def test_forbidden_imports_are_found(importer: str, target: str) -> None:
    assert not _allowed(Import(importer, target, line=1))


def test_third_party_packages_are_imported_only_where_allowed() -> None:
    breaches = [
        str(found)
        for module in MODULES.values()
        for found in module.imports()
        for rooms in [KEPT_TO.get(found.target.partition(".")[0])]
        if rooms is not None and not any(_within(module.name, room) for room in rooms)
    ]
    _none(breaches)


def test_there_are_no_import_cycles() -> None:
    graph: dict[str, set[str]] = {name: set() for name in MODULES}
    for found in _first_party():
        if found.importer != "elt_assets":  # lazy at run time
            graph[found.importer].add(_module_of(found.target))
    # Raises CycleError, which names the modules of the cycle in order.
    graphlib.TopologicalSorter(graph).prepare()


def test_no_function_imports_first_party_modules() -> None:
    breaches = {
        str(found)
        for module in MODULES.values()
        if any(isinstance(node, IMPORTS) and node.col_offset for node in module.nodes)
        for function in module.functions()
        for found in module.imports(within=function)
        if _is_first_party(found.target)
    }
    _none(sorted(breaches))


@pytest.mark.process
def test_importing_the_protocol_loads_no_heavy_packages() -> None:
    rooms = [name for name in MODULES if _within(name, "elt_assets.protocol")]
    assert not _loaded_with(rooms) & set(HEAVY)


@pytest.mark.process
@pytest.mark.parametrize("command", ["connectors", "partitions", "preview", "test_connector"])
def test_commands_that_need_no_asset_load_no_dagster(command: str) -> None:
    assert not _loaded_with([f"elt_assets.cli.commands.{command}"]) & {"dagster"}


def _loaded_with(modules: Sequence[str]) -> set[str]:
    """Return the names of all modules that are loaded after an import of some."""
    script = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_folders_and_functions_have_a_limited_size() -> None:
    folders = Counter(
        module.path.parent for module in MODULES.values() if module.path.stem != "__init__"
    )
    full = [
        f"{folder.relative_to(ROOT)}: {number} modules"
        for folder, number in folders.items()
        if number > MAX_MODULES
    ]
    long_functions = [
        f"{module.name}.{function.name}: {lines} lines"
        for module in MODULES.values()
        for function in module.functions()
        for lines in [(function.end_lineno or 0) - function.lineno + 1]
        if lines > MAX_FUNCTION_LINES
    ]
    _none(full + long_functions)


def _none(breaches: list[str]) -> None:
    assert not breaches, "\n".join(["", *breaches])


# --- how names are read ---------------------------------------------------------------------------


def _modules() -> dict[str, Module]:
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            if parts[:2] == ("elt_assets", "defs") and parts[2:] != ("__init__",):
                continue  # what users put beside their connections is theirs
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = Module(name, path)
    return found


MODULES = _modules()


def _first_party() -> Iterator[Import]:
    for module in MODULES.values():
        yield from (found for found in module.imports() if _is_first_party(found.target))


def _is_first_party(name: str) -> bool:
    return any(_within(name, package) for package in PACKAGES)


def _within(name: str, room: str) -> bool:
    return name == room or name.startswith(f"{room}.")


def _module_of(target: str) -> str:
    """The module that `target` is, or is an attribute of."""
    while target not in MODULES and "." in target:
        target = target.rpartition(".")[0]
    return target


def _room(name: str) -> str:
    """The row that fits: the longest."""
    return max((room for room in ROOMS if _within(name, room)), key=len, default="")


def _is_unlisted(name: str) -> bool:
    """The package itself has a row; that row must not admit a module without a row of its own."""
    return _room(name) == "elt_assets" != name


def _allowed(found: Import) -> bool:
    here, target = _room(found.importer), _module_of(found.target)
    allowed = (f"elt_assets.{room}" for room in ROOMS[here])
    return here == _room(target) or any(_within(target, room) for room in allowed)


def test_modules_named_in_the_document_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = sorted(set(re.findall(r"`([a-z_]+/[a-z_/]+)`", text)))
    assert len(named) > 40
    places = [ROOT / "elt_assets" / name for name in named]
    _none(
        [
            str(place)
            for place in places
            if not (place.is_dir() or place.with_suffix(".py").exists())
        ]
    )
