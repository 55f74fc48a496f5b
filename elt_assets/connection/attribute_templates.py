"""Templates in the attributes of a connection, at every level.

They can use `env.NAME`, `context.project_root`, and the variables of the component and of
`template_vars_module`. They are evaluated when the connection is loaded, also by `elt` without Dagster, so
they read no credential. In the `config` and the `environment` of a connector, only expressions of
`context.project_root` and of these variables are evaluated here: `env` is read when the connector starts, and
any other text with braces is for the connector. Templates in `translation` are evaluated for each stream.

Those in `post_processing`, beside the attributes, are evaluated by Dagster, as Jinja without limits. So they
are checked before: what is only names, attributes of names and `env('NAME', 'default')` runs no code.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import TemplateSyntaxError, nodes
from jinja2.exceptions import SecurityError
from jinja2.nativetypes import NativeEnvironment

from elt_assets import paths
from elt_assets.connection.sandbox import (
    MARKS,
    MAX_LENGTH,
    SafeVariables,
    Sandbox,
    TemplateError,
)
from elt_assets.errors import ConfigError
from elt_assets.runner.config.references import LITERAL
from elt_assets.settings import dg_defs, load_module_of, project

_CONNECTOR_TEXTS = frozenset(
    (side, key) for side in ("source", "destination") for key in ("config", "environment")
)
"""Paths of the attributes that may have templates for a connector."""
_LATER = ("translation",)
"""Path of the attribute whose templates are evaluated for each stream."""
_EXPRESSION = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_MARK = "{{"
_ROOT = "context.project_root"
_TEMPLATE_VARIABLE = "__dagster_template_var"
"""The attribute by which Dagster marks the functions of template variables."""
_SANDBOX = Sandbox()
_ENV = nodes.Name("env", "load")
_QUOTED = 200
"""Maximum number of characters of a template in an error."""

Json = Mapping[str, Any]


class _ProjectContext:
    """What a template can use of `context`: `project_root`."""

    @property
    def project_root(self) -> str:
        return str(project() or paths.connections().parent)


def resolve_attributes(attributes: Json, file: Path, variables: Mapping[str, Any]) -> Json:
    """Return the attributes of a connection with their templates evaluated.

    Args:
        file: the definition file, for errors.
        variables: the template variables of the component.

    Raises:
        ConfigError: a template is not valid, does what no template may do, or is in the name.
    """
    if _MARK in str(attributes.get("name", "")):
        raise ConfigError(
            f"{file}: name: the name of a connection cannot be a template",
            guidance="write the name; `namespace` and `prefix` may differ between environments",
        )
    scope = {**variables, "env": SafeVariables(), "context": _ProjectContext()}
    try:
        return {name: _resolve(value, (name,), scope, file) for name, value in attributes.items()}
    except TemplateError as error:
        raise ConfigError(
            str(error),
            guidance="correct the template; docs/dagster.md describes what a template can do, and how to "
            "write two braces that are none",
        ) from None


def write_literally(value: Any) -> Any:
    """Return the attributes that evaluate to `value`, which somebody else wrote, such as a stream's name."""
    if isinstance(value, str) and _MARK in value:
        return f"{{{{ {json.dumps(value, ensure_ascii=False)} }}}}"
    if isinstance(value, Mapping):
        return {name: write_literally(part) for name, part in value.items()}
    return list(map(write_literally, value)) if isinstance(value, list) else value


def check_post_processing(value: Any, file: Path, place: str = "post_processing") -> None:
    """Check that no template in the `post_processing` of a connection runs code or reads a credential.

    Raises:
        ConfigError: a template is more than names, attributes of names, and calls of `env`.
    """
    if isinstance(value, Mapping):
        for name, part in value.items():
            check_post_processing(part, file, f"{place}.{name}")
    elif isinstance(value, list):
        for number, part in enumerate(value):
            check_post_processing(part, file, f"{place}.{number}")
    elif isinstance(value, str) and any(mark in value for mark in MARKS):
        try:
            _refuse_code(value)
        except (SecurityError, ConfigError, TemplateSyntaxError, RecursionError) as error:
            text = value if len(value) <= _QUOTED else f"{value[:_QUOTED]}…"
            raise ConfigError(
                f"{file}: {place}: the template {text!r} cannot be evaluated: {error}",
                guidance="write names and attributes of names, such as {{ asset.group_name }}, and text "
                "around them; docs/dagster.md describes what a template can do",
            ) from None


def _refuse_code(template: str) -> None:
    if len(template) > MAX_LENGTH:
        raise SecurityError(f"it has more than {MAX_LENGTH:,} characters")
    for statement in NativeEnvironment().parse(template).body:
        if not isinstance(statement, nodes.Output):
            raise SecurityError("it is no expression")
        for part in statement.nodes:
            if not isinstance(part, nodes.TemplateData):
                _refuse_expression(part)


def _refuse_expression(expression: nodes.Expr) -> None:
    """Refuse an expression that is more than a name, an attribute of one, or a call of `env`."""
    if isinstance(expression, nodes.Call) and expression.node == _ENV:
        values = [part.value for part in expression.args if isinstance(part, nodes.Const)]
        if len(values) == len(expression.args) in (1, 2) and not expression.kwargs:
            SafeVariables()(str(values[0]), None)
            return
    if isinstance(expression, nodes.Getattr) and not expression.attr.startswith("_"):
        if expression.node == _ENV:
            SafeVariables()(expression.attr, None)
        _refuse_expression(expression.node)
        return
    if not isinstance(expression, nodes.Name):
        raise SecurityError("it can use names, attributes of names, and env('NAME', 'default')")


def load_variables(model: type, module: object, file: Path) -> dict[str, Any]:
    """Return the template variables of a component.

    Args:
        model: the class of the component.
        module: the module that its document names as its `template_vars_module`; None for none.

    Raises:
        ConfigError: the module cannot be imported.
    """
    owners: list[object] = [model]
    if isinstance(module, str):
        name = _absolute_name(module, file.parent)
        owners.append(load_module_of("template_vars_module", name))
    return {
        name: _call(name, function, file)
        for owner in owners
        for name, function in inspect.getmembers(owner, inspect.isfunction)
        if getattr(function, _TEMPLATE_VARIABLE, False)
    }


def _call(name: str, function: Any, file: Path) -> Any:
    if inspect.signature(function).parameters:
        return _NeedsContext(name, file)
    return function()


class _NeedsContext:
    """A variable whose function needs the context of Dagster, which a command of `elt` does not have."""

    def __init__(self, name: str, file: Path):
        self._name, self._file = name, file

    def __str__(self) -> str:
        raise TemplateError(
            f"{self._file}: the template variable {self._name} needs the context of Dagster, which commands "
            "of elt do not have"
        )


def _absolute_name(module: str, folder: Path) -> str:
    root = project()
    package = dg_defs(root) if root is not None else None
    if not module.startswith(".") or package is None:
        return module
    inner = folder.resolve().relative_to(package[1].resolve())
    return importlib.util.resolve_name(module, ".".join([package[0], *inner.parts]))


def _resolve(value: Any, place: tuple[str | int, ...], scope: Json, file: Path) -> Any:
    if place == _LATER:
        return value
    if place in _CONNECTOR_TEXTS:
        return _fill_own(value, place, scope, file)
    if isinstance(value, str) and _MARK in value:
        resolved = _SANDBOX.fill(value, scope, f"{file}: {'.'.join(map(str, place))}")
        return str(resolved) if isinstance(resolved, _NeedsContext) else resolved
    if isinstance(value, Mapping):
        return {name: _resolve(part, (*place, name), scope, file) for name, part in value.items()}
    if isinstance(value, list):
        return [_resolve(part, (*place, n), scope, file) for n, part in enumerate(value)]
    return value


def _fill_own(value: Any, place: tuple[str | int, ...], scope: Json, file: Path) -> Any:
    """Return a part of a connector's config with the expressions evaluated that are not for the connector."""
    if isinstance(value, Mapping) and set(value) != {LITERAL}:
        return {name: _fill_own(part, (*place, name), scope, file) for name, part in value.items()}
    if isinstance(value, list):
        return [_fill_own(part, (*place, n), scope, file) for n, part in enumerate(value)]
    if not isinstance(value, str) or _MARK not in value:
        return value
    where = f"{file}: {'.'.join(map(str, place))}"

    def fill(match: re.Match[str]) -> Any:
        text = match[0]
        names = _SANDBOX.names_in(text)
        is_own = names <= scope.keys() - {"env"} and ("context" not in names or _ROOT in text)
        return _SANDBOX.fill(text, scope, where) if names and is_own else text

    whole = _EXPRESSION.fullmatch(value)
    if whole is not None and value.count(_MARK) == 1:
        resolved = fill(whole)
        return str(resolved) if isinstance(resolved, _NeedsContext) else resolved
    return _EXPRESSION.sub(lambda match: str(fill(match)), value)
