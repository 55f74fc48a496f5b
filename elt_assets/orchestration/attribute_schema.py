"""The JSON schema of attributes for editors and `dg check yaml`, in which each may be a template."""

from __future__ import annotations

from typing import Any

from pydantic import GetJsonSchemaHandler

Schema = dict[str, Any]
_TEMPLATE = {"type": "string", "pattern": r"\{\{"}
_CONSTRAINTS = frozenset({"pattern", "format", "enum", "const", "minLength", "maxLength"})
_META = ("title", "description", "default", "examples")


def allow_templates(schema: Schema, handler: GetJsonSchemaHandler) -> Schema:
    """Return the schema of a model in which the value of each property may be a template, at every level.

    The definitions that it refers to are changed in place.
    """
    _visit(schema, handler, set())
    return schema


def _visit(schema: Any, handler: GetJsonSchemaHandler, visited: set[int]) -> None:
    if isinstance(schema, dict) and "$ref" in schema:
        schema = handler.resolve_ref_schema(schema)
    if not isinstance(schema, dict) or id(schema) in visited:
        return
    visited.add(id(schema))
    for part in (schema.get("items"), schema.get("additionalProperties")):
        _visit(part, handler, visited)
    for keyword in ("anyOf", "oneOf", "allOf"):
        for part in schema.get(keyword, []):
            _visit(part, handler, visited)
    properties = schema.get("properties", {})
    for name, inner in properties.items():
        _visit(inner, handler, visited)
        properties[name] = _accept_template(inner)
    if isinstance(schema.get("items"), dict):
        schema["items"] = _accept_template(schema["items"])


def _accept_template(schema: Any) -> Any:
    options = schema.get("anyOf", [schema])
    if any(
        option.get("type") == "string" and not _CONSTRAINTS & option.keys() for option in options
    ):
        return schema
    meta = {key: schema[key] for key in _META if key in schema}
    plain = {key: value for key, value in schema.items() if key not in meta}
    first = plain.pop("anyOf", None) if set(plain) == {"anyOf"} else [plain]
    return {"anyOf": [*first, _TEMPLATE], **meta} if first != [{}] else schema
