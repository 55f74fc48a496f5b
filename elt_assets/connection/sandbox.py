"""Templates in YAML, evaluated so that they run no code.

Dagster evaluates `{{ … }}` as unrestricted Jinja, in which every value leads to Python's modules. Here a
template is one expression over a fixed scope, in Jinja's sandbox. Three rules make its evaluation harmless:

- **Scope.** It has the variables of the place where it stands, and `env` for variables that hold no
  credential. Jinja's own globals, statements and macros do not exist, so it has no loop and no recursion.
- **Calls.** It may call what the scope offers, methods of plain values, and methods of the objects of known
  types. It cannot call methods of other objects: a pydantic model, for example, has one that unpickles.
- **Size.** The sizes of the values of a call, a filter or a multiplication are multiplied before it, and
  the product must not exceed `MAX_SIZE`. What only adds is bounded by the length of the template.
"""

from __future__ import annotations

import datetime as dt
import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from types import FunctionType
from typing import Any

from jinja2 import StrictUndefined, Undefined, meta, nodes
from jinja2.exceptions import SecurityError, TemplateSyntaxError, UndefinedError
from jinja2.nativetypes import NativeEnvironment
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from elt_assets.runner.config.credentials import may_give_access, refuse_reserved

MAX_SIZE = 1_000_000
"""Largest product of the sizes of the values of one operation: characters, items, or the number itself."""
MAX_LENGTH = 10_000
"""Maximum number of characters of a text with templates."""
MARKS = ("{{", "{%", "{#")
_QUOTED = 200
"""Maximum number of characters of a template in an error."""
FILTERS = frozenset(
    {"capitalize", "d", "default", "first", "int", "join", "last", "length", "lower", "replace"}
    | {"string", "title", "trim", "upper"}
)
_PLAIN = (str, bytes, int, float, list, tuple, dict)
_TIMES = (dt.date, dt.time, dt.timedelta, dt.tzinfo)
_FORMATTING = frozenset({"format", "format_map"})
"""Methods that read the width of their result from a text; `~` joins texts instead."""


class TemplateError(ValueError):
    """A template is not valid, or does what no template may do."""


class Sandbox:
    """The rules by which templates are evaluated.

    Args:
        methods: types of objects, beside dates and times, whose methods a template may call.
        made: further types of objects that a template may make.
        withheld: types of objects in a scope that a template must not call.
    """

    def __init__(
        self, methods: Sequence[type] = (), made: Sequence[type] = (), withheld: Sequence[type] = ()
    ):
        self._environment = _Environment((*methods, *_TIMES), made, tuple(withheld))

    def evaluate(self, template: str, scope: Mapping[str, Any], place: str) -> Any:
        """Return the value of a template; a text without a template is read as Dagster reads it.

        Args:
            scope: the values that the template can use, by name.
            place: where the template is, for the error.

        Raises:
            TemplateError: the template is not valid, or does what no template may do.
        """
        if len(template) > MAX_LENGTH and not any(mark in template for mark in MARKS):
            return template
        return self._run(template, scope, place, NativeEnvironment.concat)

    def fill(self, template: str, scope: Mapping[str, Any], place: str) -> Any:
        """Return the value of a template, in which a text stays a text: `5` does not become a number.

        The arguments and the error are those of `evaluate`.
        """
        return self._run(template, scope, place, _join)

    def names_in(self, template: str) -> set[str]:
        """Return the names that a template uses; none if it is not valid."""
        try:
            return meta.find_undeclared_variables(self._parse(template))
        except (TemplateSyntaxError, SecurityError, RecursionError):
            return set()

    def _run(
        self, template: str, scope: Mapping[str, Any], place: str, join: Callable[[Any], Any]
    ) -> Any:
        try:
            compiled = self._environment.from_string(self._parse(template))
            value = join(compiled.root_render_func(compiled.new_context(dict(scope))))
            return value if not isinstance(value, Undefined) else str(value)  # raises an error
        except UndefinedError as error:
            reason = f"{error.message}; it can use {', '.join(sorted(scope))}"
        except Exception as error:  # noqa: BLE001 - any: of the functions that a template calls
            reason = str(error) or type(error).__name__
        text = template if len(template) <= _QUOTED else f"{template[:_QUOTED]}…"
        raise TemplateError(f"{place}: the template {text!r} cannot be evaluated: {reason}")

    def _parse(self, template: str) -> nodes.Template:
        """Return the syntax tree of a template that consists of texts and expressions."""
        if len(template) > MAX_LENGTH:
            raise SecurityError(f"it has more than {MAX_LENGTH:,} characters")
        tree = self._environment.parse(template)
        for statement in tree.body:
            if not isinstance(statement, nodes.Output):
                raise SecurityError(
                    f"the statement {type(statement).__name__!r} is not available here"
                )
        return tree


class SafeVariables:
    """The variables of this process that hold no credential: `env.NAME`, `env('NAME', 'default')`."""

    def __call__(self, key: str, default: Any = ...) -> Any:
        refuse_reserved(key, "a template")
        value = os.environ.get(key)
        if may_give_access(key, value or ""):
            raise SecurityError(
                f"it reads the environment variable {key}, which may hold a credential; "
                "definitions are loaded without secrets"
            )
        if value is None and default is ...:
            raise SecurityError(
                f"the environment variable {key} is not set; write env('{key}', 'default') for a default"
            )
        return default if value is None else value

    def __getattr__(self, key: str) -> Any:
        if key.startswith(("_", "jinja")):
            raise AttributeError(key)
        value = self(key, None)
        hint = f"the environment variable {key} is not set"
        return _Unset(hint) if value is None else value


class _Unset(Undefined):
    """A variable that is not set: false, so that `env.NAME or 'default'` works, and an error as a value."""

    __str__ = Undefined._fail_with_undefined_error  # noqa: SLF001 - as Jinja's own subclasses do


def _join(values: Any) -> Any:
    parts = list(values)
    return parts[0] if len(parts) == 1 else "".join(map(str, parts))


class _Environment(ImmutableSandboxedEnvironment, NativeEnvironment):
    """Jinja's sandbox, with values of any type as results, and with the rules of this module."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def __init__(
        self, methods: tuple[type, ...], made: Sequence[type], withheld: tuple[type, ...]
    ) -> None:
        super().__init__(undefined=StrictUndefined)
        self._methods, self._made, self._withheld = methods, (*methods, *made), withheld
        self._factories = frozenset(
            getattr(kind, name)
            for kind in methods
            for name, attribute in vars(kind).items()
            if isinstance(attribute, staticmethod) and not name.startswith("_")
        )
        self.globals.clear()
        self.filters = {name: _limit_filter(self.filters[name]) for name in FILTERS}

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" or (operator == "%" and isinstance(left, str | bytes)):
            raise SecurityError(f"the operator {operator!r} is not available here")
        _check_size(left, right)
        return super().call_binop(context, operator, left, right)

    def call(self, context: Context, function: Any, /, *args: Any, **named: Any) -> Any:
        is_allowed = self._is_offered(function, context) or self._is_harmless(function)
        if not is_allowed and not isinstance(function, Undefined):
            name = getattr(function, "__name__", type(function).__name__)
            raise SecurityError(f"a template must not call {name!r}")
        _check_size(getattr(function, "__self__", None), *args, *named.values())
        return super().call(context, function, *args, **named)

    def _is_offered(self, function: Any, context: Context) -> bool:
        """Return whether a function is in the scope, and is none that is withheld."""
        is_variable = any(function is value for value in context.parent.values())
        return is_variable and not isinstance(function, self._withheld)

    def _is_harmless(self, function: Any) -> bool:
        """Return whether a template may call a function: it makes an object, or is a method of a value."""
        if isinstance(function, type):
            return issubclass(function, self._made)
        if isinstance(function, FunctionType):
            return function in self._factories
        owner = getattr(function, "__self__", None)
        if type(owner) in _PLAIN:  # not of a subclass: Dagster's objects are tuples
            return function.__name__ not in _FORMATTING
        return issubclass(owner if isinstance(owner, type) else type(owner), self._methods)


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
