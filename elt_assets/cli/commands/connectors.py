"""`elt connectors`: lists the connectors that a connection can name, and how to name others."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from elt_assets import paths
from elt_assets.cli.output import FAILED, OK, Document, Output, subcommand
from elt_assets.errors import EltError
from elt_assets.runner.kinds import KINDS, list_built_in, open_connector
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
    configs = [
        ", ".join(f"{name}{'*' * (name in row['required'])}" for name in row["config"])
        for row in rows
    ]
    out.table(
        ["connector", "description", "config (*: required)"],
        [
            (row["connector"], row["description"] or row["error"], config)
            for row, config in zip(rows, configs, strict=True)
        ],
    )
    others = list(_list_others())
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


def _list_others() -> Iterator[tuple[str, str]]:
    """Yield the sources of other kinds on this machine, as they are written in YAML, and where they are.

    Manifests in the folders of connections are written as another connection names them.
    """
    for kind in KINDS.values():
        for value, place in kind.available(paths.packages()):
            text = value if isinstance(value, str) else f"[{', '.join(value)}]"
            yield f"{kind.key}: {text}", place
    root = paths.connections()
    for path in sorted(root.rglob("*.y*ml")):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if _MANIFEST.search(path.read_text(encoding="utf-8")):
                yield f"manifest: ../{path.relative_to(root)}", str(path)
