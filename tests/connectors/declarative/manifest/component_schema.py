"""The names in the component schema of Airbyte's CDK: types, their fields, and the texts that these allow.

`python -m tests.connectors.declarative.manifest.component_schema FILE > EXTRACT` makes the extract
`component_schema.txt` of the file `declarative_component_schema.yaml` of airbyte-cdk. A type that is defined
in a field has the name of the type and the field.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

EXTRACT = Path(__file__).with_suffix(".txt")
_NO_FIELDS = ("type", "$parameters", "$schema", "$options")

Types = Mapping[str, Mapping[str, frozenset[str]]]
"""The texts that a field allows, by type and field; none for a field that allows other values."""


def read_extract() -> Types:
    types: dict[str, dict[str, frozenset[str]]] = {}
    for line in EXTRACT.read_text(encoding="utf-8").splitlines():
        name, _, fields = line.partition(":")
        pairs = (field.partition("=") for field in fields.split())
        types[name] = {
            field: frozenset(texts.split("|") if texts else ()) for field, _, texts in pairs
        }
    return types


def lines_of(schema: Mapping[str, Any]) -> Iterator[str]:
    definitions = {"DeclarativeSource": schema, **schema["definitions"]}
    types: dict[str, dict[str, set[str]]] = {}
    for name, definition in definitions.items():
        tags = _properties(definition).get("type", {}).get("enum")
        for tag in tags if isinstance(tags, list) else [name]:
            _add_type(types, tag, definition, definitions)
    for name in sorted(types):
        fields = [
            f"{field}={'|'.join(sorted(texts))}" if texts else field
            for field, texts in sorted(types[name].items())
        ]
        yield f"{name}: {' '.join(fields)}".rstrip()


def _add_type(
    types: dict[str, dict[str, set[str]]], name: str, definition: Any, definitions: Any
) -> None:
    properties = _properties(definition)
    if not properties:
        return
    fields = types.setdefault(name, {})
    for field, part in properties.items():
        if field in _NO_FIELDS:
            continue
        fields[field] = _texts(part, definitions)
        if "properties" in part:
            _add_type(types, f"{name}.{field}", part, definitions)


def _properties(definition: Any) -> dict[str, Any]:
    properties = dict(definition.get("properties") or {})
    for part in definition.get("anyOf") or ():
        properties |= part.get("properties") or {}
    return properties


def _texts(part: Any, definitions: Any) -> set[str]:
    """Return the texts that a field allows; none if it is a component."""
    if "$ref" in part:
        target = definitions[part["$ref"].rpartition("/")[2]]
        return set() if _properties(target) else _texts(target, definitions)
    inner = [*(part.get("anyOf") or ()), *([part["items"]] if "items" in part else [])]
    texts = {str(text) for text in part.get("enum") or ()}
    return texts.union(*(_texts(inner_part, definitions) for inner_part in inner))


if __name__ == "__main__":
    sys.stdout.writelines(
        f"{line}\n" for line in lines_of(yaml.safe_load(Path(sys.argv[1]).read_text("utf-8")))
    )
