"""Templates with Dagster's own objects, evaluated by the rules of `connection.sandbox`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg
from dagster.components.core.context import RESOLUTION_CONTEXT_STASH_KEY
from dagster.components.resolved.errors import ResolutionException
from dagster.components.resolved.scopes import DeprecatedScope, EnvScope, WrappedObjectScope

from elt_assets.connection.sandbox import SafeVariables, Sandbox, TemplateError
from elt_assets.paths import DEFINITION_FILE

TEMPLATE_GUIDANCE = "correct the template; docs/dagster.md describes what a template can do"
_SANDBOX = Sandbox(
    methods=(dg.AssetKey, dg.AutomationCondition, dg.FreshnessPolicy),
    made=(dg.PartitionsDefinition,),
    withheld=(DeprecatedScope,),
)


class SafeContext(dg.ResolutionContext):
    """A context whose templates run no code."""

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
        """Return a value with all templates in it evaluated.

        Raises:
            ResolutionException: a template is not valid, or does what no template may do.
        """
        if isinstance(val, dict):
            return {name: self.at_path(name).resolve_value(part) for name, part in val.items()}
        if isinstance(val, list | tuple):
            return type(val)(self.at_path(i).resolve_value(part) for i, part in enumerate(val))
        return evaluate(val, self.scope, self._place()) if isinstance(val, str) and val else val

    def _place(self) -> str:
        loading = self.stash.get(RESOLUTION_CONTEXT_STASH_KEY)
        files = [] if loading is None else [str(loading.path / DEFINITION_FILE)]
        return ": ".join([*files, ".".join(map(str, self.path))])


def evaluate(template: str, scope: Mapping[str, Any], place: str) -> Any:
    """Return the value of a template; a text without a template is read as Dagster reads it.

    Args:
        scope: the values that the template can use, by name.
        place: where the template is, for the error.

    Raises:
        ResolutionException: the template is not valid, or does what no template may do.
    """
    try:
        return _SANDBOX.evaluate(template, _guard(scope), place)
    except TemplateError as error:
        raise ResolutionException(str(error)) from None


def list_variables(scope: Mapping[str, Any]) -> dict[str, Any]:
    """Return the template variables of a component, without what Dagster itself offers in a scope."""
    own = (EnvScope, WrappedObjectScope, DeprecatedScope)
    return {name: value for name, value in scope.items() if not isinstance(value, own)}


def _guard(scope: Mapping[str, Any]) -> dict[str, Any]:
    """Return a scope whose `env` reads no credential."""
    return {
        name: SafeVariables() if isinstance(value, EnvScope) else value
        for name, value in scope.items()
    }
