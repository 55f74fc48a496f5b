"""`elt connectors`: lists the connectors that a connection can name, and how to name others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from elt_assets import paths
from elt_assets.cli.options import subcommand
from elt_assets.cli.output import FAILED, OK, Document, Output
from elt_assets.errors import EltError
from elt_assets.runner.kinds.builtin import list_built_in
from elt_assets.runner.kinds.registry import KINDS, open_connector
from elt_assets.runner.source_kind import ConnectorSpec

_MANIFEST = re.compile(r"""^["']?type["']?:\s*["']?DeclarativeSource\b""", re.MULTILINE)


@subcommand("connectors", "elt connectors", "elt connectors --json")
def command(out: Output) -> int:
    """List the built-in connectors with their config, and the other sources.

    The second table lists the programs, packages, Singer taps and manifests that are found on this machine,
    as a connection names them: programs whose name begins with source- or tap-, packages that are installed,
    and manifests in Python packages and in the folders of connections. The third table shows how each kind of
    source is written. The exit code is 1 if a connector cannot be started.
    """
    rows = [_describe(name) for name in list_built_in()]
    out.table(
        ["connector", "description", "config (*: required)"],
        [(row["connector"], row["description"] or row["error"], _settings(row)) for row in rows],
    )
    others = [*_others(), *_manifests()]
    if others:
        out.table(["source:", "found at"], others)
    examples = {text: program for kind in KINDS.values() for text, program in kind.examples}
    out.table(["source:", "program"], examples.items())
    out.document({"connectors": rows, "found": dict(others), "kinds": examples})
    return FAILED if any(row["error"] for row in rows) else OK


def _describe(name: str) -> Document:
    """Describe a built-in connector by its specification, or by the error if it cannot be started."""
    kind = KINDS["connector"]
    connector = open_connector(ConnectorSpec(kind, name, {}, paths.staging(), paths.packages()))
    answer: Document = {
        "connector": name,
        "description": None,
        "documentation": None,
        "error": None,
    }
    try:
        specification = connector.specification
    except EltError as error:
        return {**answer, "error": error.message, "config": [], "required": []}
    schema = specification.connectionSpecification
    return {
        **answer,
        "description": schema.get("title") or schema.get("description"),
        "documentation": specification.documentationUrl,
        "config": list(schema.get("properties") or {}),
        "required": list(schema.get("required") or []),
    }


def _others() -> Iterator[tuple[str, str]]:
    """Yield the sources of other kinds on this machine, as they are written in YAML, and where they are."""
    for kind in KINDS.values():
        for value, place in kind.available(paths.packages()):
            text = value if isinstance(value, str) else f"[{', '.join(value)}]"
            yield f"{kind.key}: {text}", place


def _manifests() -> Iterator[tuple[str, str]]:
    """Yield the manifests in the folders of connections, as another connection names them."""
    root = paths.connections()
    for path in sorted(root.rglob("*.y*ml")):
        if _is_manifest(path):
            yield f"manifest: ../{path.relative_to(root)}", str(path)


def _is_manifest(path: Path) -> bool:
    try:
        return _MANIFEST.search(path.read_text(encoding="utf-8")) is not None
    except (OSError, UnicodeDecodeError):
        return False


def _settings(description: Document) -> str:
    return ", ".join(
        f"{name}{'*' * (name in description['required'])}" for name in description["config"]
    )
