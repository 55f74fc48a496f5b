"""Templates in the YAML of connections, evaluated so that they run no code.

Dagster evaluates `{{ … }}` as unrestricted Jinja, in which every value leads to Python's modules. Here a
template is one expression over a fixed scope, in Jinja's sandbox. Three rules make its evaluation harmless:

- **Scope.** It has the variables of the place where it stands, Dagster's `dg` and `datetime`, the template
  variables of the component, and `env` for variables that hold no credential. Jinja's own globals, statements
  and macros do not exist, so a template has no loop and no recursion.
- **Calls.** It may call what the scope offers, methods of plain values, and methods of the Dagster and
  datetime objects that it can make. It cannot call methods of other objects: a pydantic model, for
  example, has one that unpickles.
- **Size.** The sizes of the values of a call, a filter or a multiplication are multiplied before it, and
  the product must not exceed `MAX_SIZE`. What only adds is bounded by the length of the template.
"""

from __future__ import annotations

import datetime as dt
import math
import os
from collections.abc import Callable, Mapping
from functools import wraps
from types import FunctionType
from typing import Any

import dagster as dg
from dagster.components.core.context import RESOLUTION_CONTEXT_STASH_KEY
from dagster.components.resolved.errors import ResolutionException
from dagster.components.resolved.scopes import DeprecatedScope, EnvScope
from jinja2 import StrictUndefined, Undefined, nodes
from jinja2.exceptions import SecurityError, UndefinedError
from jinja2.nativetypes import NativeEnvironment
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from elt_assets.paths import DEFINITION_FILE
from elt_assets.runner.config.credentials import may_give_access, refuse_reserved

MAX_SIZE = 1_000_000
"""Largest product of the sizes of the values of one operation: characters, items, or the number itself."""
MAX_LENGTH = 10_000
"""Maximum number of characters of a text with templates."""
_MARKS = ("{{", "{%", "{#")
TEMPLATE_GUIDANCE = "correct the template; docs/dagster.md describes what a template can do"
_QUOTED = 200
"""Maximum number of characters of a template in an error."""
FILTERS = frozenset(
    {"capitalize", "d", "default", "first", "int", "join", "last", "length", "lower", "replace"}
    | {"string", "title", "trim", "upper"}
)
_PLAIN = (str, bytes, int, float, list, tuple, dict)
_METHODS = (
    *(dg.AssetKey, dg.AutomationCondition, dg.FreshnessPolicy),
    *(dt.date, dt.time, dt.timedelta, dt.tzinfo),
)
"""Types of objects whose methods a template may call."""
_FACTORIES = frozenset(
    getattr(kind, name)
    for kind in _METHODS
    for name, attribute in vars(kind).items()
    if isinstance(attribute, staticmethod) and not name.startswith("_")
)
"""The static methods of these types."""
_MADE = (*_METHODS, dg.PartitionsDefinition)
"""Types of objects that a template may make."""
_FORMATTING = frozenset({"format", "format_map"})
"""Methods that read the width of their result from a text; `~` joins texts instead."""


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
    if len(template) > MAX_LENGTH and not any(mark in template for mark in _MARKS):
        return template
    try:
        value: Any = _ENVIRONMENT.from_string(_parse(template)).render(_guard(scope))
        return value if not isinstance(value, Undefined) else value()  # raises an error
    except UndefinedError as error:
        reason = f"{error.message}; it can use {', '.join(sorted(scope))}"
    except Exception as error:  # noqa: BLE001 - any: of the functions that a template calls
        reason = str(error) or type(error).__name__
    text = template if len(template) <= _QUOTED else f"{template[:_QUOTED]}…"
    raise ResolutionException(f"{place}: the template {text!r} cannot be evaluated: {reason}")


class _Environment(ImmutableSandboxedEnvironment, NativeEnvironment):
    """Jinja's sandbox, with values of any type as results, and with the rules of this module."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(undefined=StrictUndefined)
        self.globals.clear()
        self.filters = {name: _limit_filter(self.filters[name]) for name in FILTERS}

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" or (operator == "%" and isinstance(left, str | bytes)):
            raise SecurityError(f"the operator {operator!r} is not available here")
        _check_size(left, right)
        return super().call_binop(context, operator, left, right)

    def call(self, context: Context, function: Any, /, *args: Any, **named: Any) -> Any:
        is_allowed = _is_offered(function, context) or _is_harmless(function)
        if not is_allowed and not isinstance(function, Undefined):
            name = getattr(function, "__name__", type(function).__name__)
            raise SecurityError(f"a template must not call {name!r}")
        _check_size(getattr(function, "__self__", None), *args, *named.values())
        return super().call(context, function, *args, **named)


class _SafeEnv(EnvScope):
    """The variables of this process that hold no credential."""

    def __call__(self, key: str, default: Any = ...) -> Any:
        refuse_reserved(key, "a template")
        if may_give_access(key, os.environ.get(key, "")):
            raise SecurityError(
                f"it reads the environment variable {key}, which may hold a credential; "
                "definitions are loaded without secrets"
            )
        return super().__call__(key, default)

    def __getattr__(self, key: str) -> Any:
        return super().__getattr__(key) if key.startswith("jinja") else self(key, None)


def _parse(template: str) -> nodes.Template:
    """Return the syntax tree of a template that consists of texts and expressions."""
    if len(template) > MAX_LENGTH:
        raise SecurityError(f"it has more than {MAX_LENGTH:,} characters")
    tree = _ENVIRONMENT.parse(template)
    for statement in tree.body:
        if not isinstance(statement, nodes.Output):
            raise SecurityError(f"the statement {type(statement).__name__!r} is not available here")
    return tree


def _guard(scope: Mapping[str, Any]) -> dict[str, Any]:
    """Return a scope whose `env` reads no credential."""
    return {
        name: _SafeEnv() if isinstance(value, EnvScope) else value for name, value in scope.items()
    }


def _is_offered(function: Any, context: Context) -> bool:
    """Return whether a function is a template variable, but none of Dagster's, which load components."""
    is_variable = any(function is value for value in context.parent.values())
    return is_variable and not isinstance(function, DeprecatedScope)


def _is_harmless(function: Any) -> bool:
    """Return whether a template may call a function: it makes a Dagster object, or is a method of a value."""
    if isinstance(function, type):
        return issubclass(function, _MADE)
    if isinstance(function, FunctionType):
        return function in _FACTORIES
    owner = getattr(function, "__self__", None)
    if type(owner) in _PLAIN:  # not of a subclass: Dagster's objects are tuples
        return function.__name__ not in _FORMATTING
    return issubclass(owner if isinstance(owner, type) else type(owner), _METHODS)


def _limit_filter(apply: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter that checks the size of what it gets."""

    @wraps(apply)
    def call(*args: Any, **named: Any) -> Any:
        _check_size(*args, *named.values())
        return apply(*args, **named)

    return call


def _check_size(*values: Any) -> None:
    if math.prod(map(_size, values)) > MAX_SIZE:
        raise SecurityError(f"a value would have a size of more than {MAX_SIZE:,}")


def _size(value: Any) -> int:
    if isinstance(value, int):
        return max(1, abs(value))
    return _weight(value)


def _weight(value: Any) -> int:
    """Return the number of characters and items in a value; a value that it has twice counts twice."""
    if isinstance(value, str | bytes):
        return max(1, len(value))
    if isinstance(value, Mapping):
        value = [*value.keys(), *value.values()]
    return max(1, sum(map(_weight, value))) if type(value) in (list, tuple) else 1


_ENVIRONMENT = _Environment()
