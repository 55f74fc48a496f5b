"""Templates with Dagster's own objects, by the rules of `connection.templates`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg
from dagster.components.core.context import RESOLUTION_CONTEXT_STASH_KEY
from dagster.components.resolved.errors import ResolutionException
from dagster.components.resolved.scopes import DeprecatedScope, EnvScope, WrappedObjectScope

from elt_assets.connection.templates import TemplateError, fill
from elt_assets.paths import DEFINITION_FILE


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
        try:
            return fill(val, scope, self._place())
        except TemplateError as error:
            raise ResolutionException(str(error)) from None

    def _place(self) -> str:
        loading = self.stash.get(RESOLUTION_CONTEXT_STASH_KEY)
        files = [] if loading is None else [str(loading.path / DEFINITION_FILE)]
        return ": ".join([*files, ".".join(map(str, self.path))])


def list_variables(scope: Mapping[str, Any]) -> dict[str, Any]:
    """Return the template variables of a component, without what Dagster itself offers in a scope."""
    own = (EnvScope, WrappedObjectScope, DeprecatedScope)
    return {name: value for name, value in scope.items() if not isinstance(value, own)}
