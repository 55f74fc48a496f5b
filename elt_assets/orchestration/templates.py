"""Templates in the attributes of a connection: in the JSON schema for editors, and in `translation`.

`component` uses both.

First `allow_templates`: in the schema for editors and `dg check yaml`, each attribute may be a template. Then
`translate_spec`, which fills in the templates of `translation`, by the rules of `connection.templates`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg
from dagster.components.resolved.errors import ResolutionException
from dagster.components.resolved.scopes import DeprecatedScope, EnvScope, WrappedObjectScope
from dagster.components.utils import TranslatorResolvingInfo
from pydantic import GetJsonSchemaHandler, ValidationError

from elt_assets.connection.templates import TEMPLATE_GUIDANCE, TemplateError, fill
from elt_assets.errors import ConfigError
from elt_assets.paths import DEFINITION_FILE

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


class SafeContext(dg.ResolutionContext):
    """A context in which templates are names, and all other text stays as it is."""

    @classmethod
    def from_context(cls, context: dg.ResolutionContext) -> SafeContext:
        """Return a context with the scope and the places of another one."""
        if isinstance(context, cls):
            return context
        return cls(
            scope=context.scope,
            path=context.path,
            source_position_tree=context.source_position_tree,
            stash=context.stash,
        )

    def resolve_value(self, val: Any, as_type: type | None = None) -> Any:  # noqa: ARG002 - Dagster's
        """Return a value with all templates in it filled in.

        Raises:
            ResolutionException: a template is not valid, or names what there is not.
        """
        if isinstance(val, dict):
            return {name: self.at_path(name).resolve_value(part) for name, part in val.items()}
        if isinstance(val, list | tuple):
            return type(val)(self.at_path(i).resolve_value(part) for i, part in enumerate(val))
        if not isinstance(val, str):
            return val
        scope = {
            n: v for n, v in self.scope.items() if not isinstance(v, EnvScope | DeprecatedScope)
        }
        contexts = (c for c in self.stash.values() if isinstance(c, dg.ComponentLoadContext))
        files = [str(loading.path / DEFINITION_FILE) for loading in contexts]
        place = ": ".join([*files, ".".join(map(str, self.path))])
        try:
            return fill(val, scope, place)
        except TemplateError as error:
            raise ResolutionException(str(error)) from None


def list_variables(scope: Mapping[str, Any]) -> dict[str, Any]:
    """Return the template variables of a component, without what Dagster itself offers in a scope."""
    own = (EnvScope, WrappedObjectScope, DeprecatedScope)
    return {name: value for name, value in scope.items() if not isinstance(value, own)}


def translate_spec(
    spec: dg.AssetSpec,
    translation: Any,
    scope: Mapping[str, Any],
    resolution: dg.ResolutionContext | None,
) -> dg.AssetSpec:
    """Return a spec with the changes of `translation`, after its templates are filled in.

    Raises:
        ConfigError: `translation` is not valid.
    """
    try:
        info = TranslatorResolvingInfo(
            dg.AssetAttributesModel.model_validate(translation)
            if not isinstance(translation, str)
            else translation,
            SafeContext.from_context(resolution or dg.ResolutionContext.default()),
            model_key="translation",
        )
        return info.get_asset_spec(spec, scope)
    except ResolutionException as error:
        raise ConfigError(str(error), guidance=TEMPLATE_GUIDANCE) from None
    except (ValidationError, dg.DagsterError, TypeError, ValueError) as error:
        problems = (
            [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
            if isinstance(error, ValidationError)
            else [str(error)]
        )
        raise ConfigError(
            f"translation: {'; '.join(problems)}",
            guidance="use the attributes that Dagster supports: key, key_prefix, group_name, tags, owners …",
        ) from error
