"""`elt connectors`: lists the built-in connectors, and the other kinds of source."""

from __future__ import annotations

from elt_assets import paths
from elt_assets.cli.options import subcommand
from elt_assets.cli.output import FAILED, OK, Document, Output
from elt_assets.errors import EltError
from elt_assets.runner.kinds.builtin import built_in
from elt_assets.runner.kinds.registry import KINDS, open_connector


@subcommand("connectors", "elt connectors", "elt connectors --json")
def command(out: Output) -> int:
    """List the built-in connectors with their config, and the other kinds of source.

    The exit code is 1 if a connector cannot be started.
    """
    found = [_described(name) for name in built_in()]
    out.table(
        ["connector", "description", "config (*: required)"],
        [(one["connector"], one["description"] or one["error"], _settings(one)) for one in found],
    )
    examples = {text: program for kind in KINDS.values() for text, program in kind.examples}
    out.table(["source:", "program"], examples.items())
    out.document({"connectors": found, "kinds": examples})
    return FAILED if any(one["error"] for one in found) else OK


def _described(name: str) -> Document:
    """Describe a built-in connector by its specification, or by the error if it cannot be started."""
    connector = open_connector("connector", name, {}, paths.staging(), paths.packages())
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


def _settings(one: Document) -> str:
    return ", ".join(f"{name}{'*' * (name in one['required'])}" for name in one["config"])
