"""Templates in the YAML of connections: names, which run no code.

`files` fills them in when it loads a connection, and `orchestration.templates` for `translation` (`fill`);
`places` and `orchestration.component` check `post_processing`; `default_attributes` writes texts with braces.

A template is `{{ … }}` around one of three things, with any text before and after it:

- a name and attributes of its value, as in `{{ context.project_root }}`, `{{ env.REGION }}`,
  `{{ stream.name }}` or `{{ my_variable }}`;
- `env('NAME', 'default')`;
- a text in quotes: `{{ '{{' }}` stands for two braces that are none.

Nothing is called but `env`, and no name begins with an underscore, so that no value leads to Python's own.
A template that stands alone has the value itself, of any type; with text around it, it is part of a text.
Statements and comments (`{% … %}`, `{# … #}`) are an error beside a template, and in what follows.

Connections are loaded without secrets, so `env` refuses what may hold one. In the `config` and the
`environment` of a connector, only `context.project_root` and the template variables are filled in here: `env`
is read when the connector starts, and any other text with braces is for the connector. Templates in
`translation` are filled in for each stream. Those in `post_processing`, beside the attributes, are Dagster's
own, which are Jinja without limits: they are refused unless they are of this form too.

`tests/connection/test_templates.py` and `tests/orchestration/test_templates.py` hold these sentences.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from elt_assets import paths
from elt_assets.errors import ConfigError
from elt_assets.runner.references import LITERAL, may_give_access, refuse_reserved
from elt_assets.settings import dg_defs, load_module_of, project

TEMPLATE_GUIDANCE = (
    "write a name with its attributes, such as {{ stream.name }}, env('NAME', 'default'), or a text in "
    "quotes; docs/dagster.md describes what a template can do"
)
_MARK = "{{"
_OTHER_MARKS = re.compile(r"\{[%#]")
"""What Dagster takes for the begin of a statement or a comment."""
_NAMES = r"(?P<names>[A-Za-z_]\w*(?:\.\w+)*)"
_NAMED = re.compile(rf"\{{\{{\s*{_NAMES}\s*\}}\}}")
_TEMPLATE = re.compile(
    rf"""\{{\{{\s*(?:
        {_NAMES}
        | env\(\s*(?P<quote>['"])(?P<variable>\w+)(?P=quote)\s*(?:,\s*(?P<default>'[^'\\]*'|"[^"\\]*")\s*)?\)
        | (?P<text>'[^'\\]*'|"(?:[^"\\]|\\.)*")
    )\s*\}}\}}""",
    re.VERBOSE,
)
_CONNECTOR_TEXTS = frozenset(
    (side, key) for side in ("source", "destination") for key in ("config", "environment")
)
"""Paths of the attributes that may have templates for a connector."""
_LATER = ("translation",)
"""Path of the attribute whose templates are filled in for each stream."""
_ROOT = "context.project_root"
_TEMPLATE_VARIABLE = "__dagster_template_var"
"""The attribute by which Dagster marks the functions of template variables."""
_MAX_LENGTH = 10_000
"""Maximum number of characters of a text with templates: a search for quotes may read it once for each."""
_QUOTED = 200
"""Maximum number of characters of a template in an error."""

Json = Mapping[str, Any]


class TemplateError(ValueError):
    """A template is not valid, or names what there is not."""


def fill(text: str, scope: Json, place: str) -> Any:
    """Return the value of a text with templates.

    Args:
        scope: the values that a template can name.
        place: where the text is, for the error.

    Raises:
        TemplateError: a template is of another form, or names what there is not.
    """
    try:
        parts = [_find(part, scope) if isinstance(part, re.Match) else part for part in _cut(text)]
    except TemplateError as error:
        raise TemplateError(_describe(text, place, error)) from None
    return parts[0] if len(parts) == 1 else "".join(map(str, parts))


def _describe(text: str, place: str, error: TemplateError) -> str:
    quoted = text if len(text) <= _QUOTED else f"{text[:_QUOTED]}…"
    return f"{place}: the template {quoted!r} cannot be evaluated: {error}"


def has_template(value: Any) -> bool:
    """Return whether a value is a text with a template."""
    return isinstance(value, str) and _MARK in value


def _cut(text: str) -> Iterator[str | re.Match[str]]:
    """Yield the parts of a text: the templates, and what is between them.

    Raises:
        TemplateError: a template is of another form.
    """
    if len(text) > _MAX_LENGTH and has_template(text):
        raise TemplateError(f"it has more than {_MAX_LENGTH:,} characters")
    end = 0
    # Dagster's reader takes the first two braces too: of `{{{`, not the last two.
    while (start := text.find(_MARK, end)) >= 0:
        match = _TEMPLATE.match(text, start)
        if match is None:
            raise TemplateError("it is no name, no env('NAME', 'default') and no text in quotes")
        yield from _refuse_statements(text[end:start])
        yield match
        end = match.end()
    yield from _refuse_statements(text[end:])


def _refuse_statements(text: str) -> Iterator[str]:
    if _OTHER_MARKS.search(text):
        raise TemplateError("it has a statement or a comment")
    if text:
        yield text


def _find(match: re.Match[str], scope: Json) -> Any:
    if match["text"] is not None:
        return _read_text(match["text"])
    if (variable := _find_variable(match)) is not None:
        return _read_variable(*variable)
    first, *attributes = _list_names(match)
    if first not in scope:
        raise TemplateError(
            f"{first!r} is undefined; it can use {', '.join(sorted({'env', *scope}))}"
        )
    value = scope[first]
    for name in attributes:
        value = _find_attribute(value, name, match["names"])
    if attributes and inspect.isroutine(value):
        raise TemplateError(f"{match['names']!r} is a function, and nothing is called here")
    return value


def _find_variable(match: re.Match[str]) -> tuple[str, str | None] | None:
    """Return the name of the environment variable that a template is, and its default; None if it is none."""
    if match["variable"] is not None:
        default = match["default"]
        return match["variable"], None if default is None else default[1:-1]
    first, *attributes = _list_names(match) if match["names"] else [""]
    return (attributes[0], None) if first == "env" and len(attributes) == 1 else None


def _list_names(match: re.Match[str]) -> list[str]:
    names: list[str] = match["names"].split(".")
    for name in names:
        if name.startswith("_"):
            raise TemplateError(f"the name {name!r} begins with an underscore")
    return names


def _find_attribute(value: Any, name: str, names: str) -> Any:
    try:
        return getattr(value, name)
    except AttributeError:
        if isinstance(value, Mapping) and name in value:
            return value[name]
        raise TemplateError(f"{names!r} has no {name!r}") from None


def _read_text(quoted: str) -> str:
    if quoted.startswith("'"):
        return quoted[1:-1]
    try:
        return str(json.loads(quoted, strict=False))
    except ValueError:
        raise TemplateError("the text in quotes has a backslash before another character") from None


def _read_variable(name: str, default: str | None = None) -> str:
    """Return a variable of this process that holds no credential.

    Raises:
        TemplateError: it may hold one, or is not set and has no default.
    """
    try:
        refuse_reserved(name, "a template")
    except ConfigError as error:
        raise TemplateError(str(error)) from None
    value = os.environ.get(name, default)
    if may_give_access(name, os.environ.get(name, "")):
        raise TemplateError(
            f"it reads the environment variable {name}, which may hold a credential; definitions are loaded "
            "without secrets"
        )
    if value is None:
        raise TemplateError(
            f"the environment variable {name} is not set; write env('{name}', 'default') for a default"
        )
    return value


class _ProjectContext:
    """What a template can use of `context`: `project_root`."""

    @property
    def project_root(self) -> str:
        return str(project() or paths.connections().parent)


def resolve_attributes(attributes: Json, file: Path, variables: Mapping[str, Any]) -> Json:
    """Return the attributes of a connection with their templates filled in.

    Args:
        file: the definition file, for errors.
        variables: the template variables of the component.

    Raises:
        ConfigError: a template is not valid, or is in the name.
    """
    if has_template(attributes.get("name")):
        raise ConfigError(
            f"{file}: name: the name of a connection cannot be a template",
            guidance="write the name; `namespace` and `prefix` may differ between environments",
        )
    scope = {**variables, "context": _ProjectContext()}
    try:
        return {name: _resolve(value, (name,), scope, file) for name, value in attributes.items()}
    except TemplateError as error:
        raise ConfigError(str(error), guidance=TEMPLATE_GUIDANCE) from None


def write_literally(value: Any) -> Any:
    """Return the attributes that evaluate to `value`, which somebody else wrote, such as a stream's name."""
    if has_template(value):
        return f"{{{{ {json.dumps(value, ensure_ascii=False)} }}}}"
    if isinstance(value, Mapping):
        return {name: write_literally(part) for name, part in value.items()}
    return list(map(write_literally, value)) if isinstance(value, list) else value


def check_post_processing(value: Any, file: Path, place: str = "post_processing") -> None:
    """Check that no template in the `post_processing` of a connection runs code or reads a credential.

    Raises:
        ConfigError: a template is of another form, or reads what may hold a credential.
    """
    if isinstance(value, Mapping):
        for name, part in value.items():
            check_post_processing(part, file, f"{place}.{name}")
    elif isinstance(value, list):
        for number, part in enumerate(value):
            check_post_processing(part, file, f"{place}.{number}")
    elif isinstance(value, str):
        try:
            for part in _cut(value):
                if isinstance(part, re.Match) and (variable := _find_variable(part)) is not None:
                    _read_variable(variable[0], "")
        except TemplateError as error:
            raise ConfigError(
                _describe(value, f"{file}: {place}", error), guidance=TEMPLATE_GUIDANCE
            ) from None


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
    if has_template(value):
        return _as_value(fill(value, scope, f"{file}: {'.'.join(map(str, place))}"))
    if isinstance(value, Mapping):
        return {name: _resolve(part, (*place, name), scope, file) for name, part in value.items()}
    if isinstance(value, list):
        return [_resolve(part, (*place, n), scope, file) for n, part in enumerate(value)]
    return value


def _fill_own(value: Any, place: tuple[str | int, ...], scope: Json, file: Path) -> Any:
    """Return a part of a connector's config with the templates filled in that are not for the connector."""
    if isinstance(value, Mapping) and set(value) != {LITERAL}:
        return {name: _fill_own(part, (*place, name), scope, file) for name, part in value.items()}
    if isinstance(value, list):
        return [_fill_own(part, (*place, n), scope, file) for n, part in enumerate(value)]
    if not isinstance(value, str):
        return value
    where = f"{file}: {'.'.join(map(str, place))}"

    def is_own(match: re.Match[str]) -> bool:
        first = match["names"].partition(".")[0]
        return match["names"] == _ROOT or (first in scope and first != "context")

    whole = _NAMED.fullmatch(value)
    if whole is not None and is_own(whole):
        return _as_value(fill(value, scope, where))
    return _NAMED.sub(
        lambda match: str(fill(match[0], scope, where)) if is_own(match) else match[0], value
    )


def _as_value(value: Any) -> Any:
    return str(value) if isinstance(value, _NeedsContext) else value
