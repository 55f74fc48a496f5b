"""Programs, to which templates compile: a constant, plain lookups, or a program of Jinja.

Most templates of real manifests are constants or look values up in a config, a record or a slice. Those run
without Jinja, with the same results; a value that such a lookup does not know is left to Jinja.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from jinja2 import meta, nodes
from jinja2.exceptions import TemplateAssertionError, UndefinedError
from jinja2.runtime import Context

from connectors.declarative.manifest.evaluation.sandbox import ENVIRONMENT, VALUES, limit_evaluation

Variables = Mapping[str, Any]

ALIASES = frozenset({"stream_interval", "stream_partition"})
"""Names of a slice. Each reads the whole slice, as in the CDK."""
SLICE = "stream_slice"
VARIABLES = frozenset(
    """
    config parameters stream_partition stream_interval stream_slice stream_state record response headers
    last_record last_page_size next_page_token stream_config components_values stream_template_config
    creation_response polling_response download_target session_token raw_schema property value path
    """.split()  # noqa: SIM905 - as a list it has twenty lines
)
"""The variables of the CDK. A template may use others, if it is evaluated with them."""

_MARKS = re.compile(r"\{[{%#]")
_NEWLINE = re.compile(r"\r\n|\r|\n")
_STEP = r"\.[A-Za-z_]\w*|\[\s*'[^'\\\r\n]*'\s*\]|\[\s*\"[^\"\\\r\n]*\"\s*\]|\[\s*\d{1,9}\s*\]"
_LOOKUP = re.compile(rf"\{{\{{\s*([a-z_]+)((?:{_STEP})*)\s*\}}\}}", re.ASCII)
_STEPS = re.compile(_STEP, re.ASCII)
_RESULT = "value_of_the_expression"
_DICT_ATTRIBUTES = frozenset(dir(dict))
_LOADING = (nodes.Extends, nodes.Include, nodes.Import, nodes.FromImport)
_SPECIAL = frozenset({"loop", "self", "caller", "varargs", "kwargs"})
"""Names that Jinja defines in loops and macros."""


class MissingVariable(Exception):
    """The template uses a variable that it is not evaluated with. The argument is its name."""


class Step(NamedTuple):
    """One step of a lookup: a key of a mapping or an index of a list."""

    key: str | int
    is_attribute: bool
    """True for `.key`, which finds a method of the value before it finds an item."""


class _Undefined:
    """The type of `UNDEFINED`, what a lookup finds where there is nothing."""

    def __str__(self) -> str:
        return ""


UNDEFINED = _Undefined()


class _LeaveToJinja(Exception):
    """The lookup met a value for which Jinja has rules of its own."""


def variable(name: str, variables: Variables) -> Any:
    """Return a variable; a part of the slice is the whole slice, if the variables have it.

    Raises:
        MissingVariable: there is no such variable.
    """
    if name in ALIASES and SLICE in variables:
        return variables[SLICE]
    try:
        return variables[name]
    except KeyError:
        raise MissingVariable(name) from None


class Program:
    """The base class of what a template's text compiles to."""

    names: frozenset[str]

    def text(self, variables: Variables) -> str:
        """Return the text that the template gives."""
        raise NotImplementedError

    def value(self, variables: Variables) -> Any:
        """Return the text, or a value that has this text."""
        return self.text(variables)

    def pieces(self, variables: Variables) -> list[Any]:
        """Return the values whose texts make up the text: one for a single expression or a constant."""
        return [self.value(variables)]


class Constant(Program):
    """A text without a template in it."""

    def __init__(self, text: str):
        self.names = frozenset()
        if "\n" in text or "\r" in text:
            text = _NEWLINE.sub("\n", text).removesuffix("\n")
        self._text = text

    def text(self, variables: Variables) -> str:
        return self._text


class Lookup:
    """A variable and the steps to a value in it."""

    def __init__(self, name: str, steps: tuple[Step, ...]):
        self.name = name
        self._steps = steps

    def find(self, variables: Variables) -> Any:
        """Return the value; `UNDEFINED` if the last step finds none.

        Raises:
            UndefinedError: a step before the last one finds nothing.
        """
        node = variable(self.name, variables)
        for key, is_attribute in self._steps:
            if node is UNDEFINED:
                raise UndefinedError
            if isinstance(node, dict):
                node = _item(node, key, is_attribute)
            elif type(node) is list and isinstance(key, int):
                node = node[key] if key < len(node) else UNDEFINED
            else:
                raise _LeaveToJinja
        return node


def _item(mapping: dict[Any, Any], key: str | int, is_attribute: bool) -> Any:
    if type(mapping) is not dict and is_attribute and hasattr(mapping, str(key)):
        raise _LeaveToJinja
    if key in mapping:
        return mapping[key]
    if type(mapping) is not dict or key in _DICT_ATTRIBUTES:
        raise _LeaveToJinja
    return UNDEFINED


class Lookups(Program):
    """Lookups, with constant texts between them. The value of a single one needs no detour through text."""

    def __init__(self, parts: tuple[str | Lookup, ...], text: str):
        self.names = frozenset(part.name for part in parts if isinstance(part, Lookup))
        self._parts = parts
        self._single = parts[0] if len(parts) == 1 and isinstance(parts[0], Lookup) else None
        self._source = text

    @cached_property
    def _jinja(self) -> Jinja:
        return Jinja(self._source)

    def text(self, variables: Variables) -> str:
        return str(self.value(variables))

    def value(self, variables: Variables) -> Any:
        try:
            if self._single is not None:
                return self._single.find(variables)
            return "".join(
                part if isinstance(part, str) else str(part.find(variables)) for part in self._parts
            )
        except _LeaveToJinja:
            return self._jinja.value(variables)

    def pieces(self, variables: Variables) -> list[Any]:
        value = self.value(variables)
        return ["", value] if self._single is None else [value]


class Jinja(Program):
    """Any other template."""

    def __init__(self, text: str):
        tree = ENVIRONMENT.parse(text)
        _check_names(tree)
        self.names = frozenset(meta.find_undeclared_variables(tree))
        self._is_expression = _make_assignment(tree)
        self._template = ENVIRONMENT.from_string(tree)
        self._globals = dict(ENVIRONMENT.globals)
        self._source = text

    @cached_property
    def _values(self) -> Any:
        return VALUES.from_string(VALUES.parse(self._source))

    def text(self, variables: Variables) -> str:
        return str(self.value(variables))

    def value(self, variables: Variables) -> Any:
        own = {name: variable(name, variables) for name in self.names}
        blocks = self._template.blocks
        context = Context(ENVIRONMENT, {**self._globals, **own}, None, blocks)
        with limit_evaluation(own):
            pieces = self._template.root_render_func(context)
            if not self._is_expression:
                return "".join(pieces)
            deque(pieces, maxlen=0)
            return context.vars[_RESULT]

    def pieces(self, variables: Variables) -> list[Any]:
        if self._is_expression:
            return [self.value(variables)]
        own = {name: variable(name, variables) for name in self.names}
        context = Context(VALUES, {**self._globals, **own}, None, self._values.blocks)
        with limit_evaluation(own):
            return list(self._values.root_render_func(context))


def _make_assignment(tree: nodes.Template) -> bool:
    """Change a template that is one expression, so that it assigns the value to a variable.

    The value needs no detour through text then. Return False for other templates.
    """
    if len(tree.body) != 1 or not isinstance(tree.body[0], nodes.Output):
        return False
    parts = tree.body[0].nodes
    if len(parts) != 1 or isinstance(parts[0], nodes.TemplateData):
        return False
    target = nodes.Name(_RESULT, "store", lineno=1)
    tree.body = [nodes.Assign(target, parts[0], lineno=1)]
    tree.set_environment(ENVIRONMENT)
    return True


@lru_cache(maxsize=20_000)
def compile_template(text: str) -> Program:
    """Return the program of a template's text.

    Raises:
        jinja2.TemplateSyntaxError: the text is not a template.
    """
    if not _MARKS.search(text):
        return Constant(text)
    parts = _parts(text)
    return Jinja(text) if parts is None else Lookups(parts, text)


@lru_cache(maxsize=20_000)
def check(text: str) -> frozenset[str]:
    """Check the syntax of a template, and return the variables that it uses, without compiling it.

    Raises:
        jinja2.TemplateSyntaxError: the text is not a template; the error says why.
    """
    if not _MARKS.search(text):
        return frozenset()
    parts = _parts(text)
    if parts is not None:
        return frozenset(part.name for part in parts if isinstance(part, Lookup))
    return _check_names(ENVIRONMENT.parse(text))


def _check_names(tree: nodes.Template) -> frozenset[str]:
    read_names: set[str] = set()
    assigned_names: set[str] = set()
    for node in tree.find_all((nodes.Name, nodes.Macro, nodes.Filter, nodes.Test, *_LOADING)):
        if isinstance(node, nodes.Name):
            (read_names if node.ctx == "load" else assigned_names).add(node.name)
        elif isinstance(node, nodes.Macro):
            assigned_names.add(node.name)
        elif isinstance(node, _LOADING):
            raise TemplateAssertionError("it cannot load other templates", node.lineno)
        elif isinstance(node, nodes.Filter) and node.name not in ENVIRONMENT.filters:
            raise TemplateAssertionError(f"there is no filter {node.name!r}", node.lineno)
        elif isinstance(node, nodes.Test) and node.name not in ENVIRONMENT.tests:
            raise TemplateAssertionError(f"there is no test {node.name!r}", node.lineno)
    return frozenset(read_names - assigned_names - _SPECIAL - ENVIRONMENT.globals.keys())


def _parts(text: str) -> tuple[str | Lookup, ...] | None:
    """Return a template's constant texts and lookups; None if it has anything else."""
    if "\r" in text or text.endswith("\n"):
        return None  # Jinja changes these
    parts: list[str | Lookup] = []
    end = 0
    for match in _LOOKUP.finditer(text):
        lookup = _lookup(match[1], _STEPS.findall(match[2]))
        if lookup is None:
            return None
        parts += [text[end : match.start()], lookup]
        end = match.end()
    parts.append(text[end:])
    if _MARKS.search("\0".join(part for part in parts if isinstance(part, str))):
        return None
    return tuple(part for part in parts if part != "")


def _lookup(name: str, steps: Iterable[str]) -> Lookup | None:
    if name not in VARIABLES:
        return None
    parsed_steps = []
    for step in steps:
        if step.startswith("."):
            if step[1:] in _DICT_ATTRIBUTES:
                return None
            parsed_steps.append(Step(step[1:], True))
        else:
            inside = step[1:-1].strip()
            key = inside[1:-1] if inside[0] in "'\"" else int(inside)
            parsed_steps.append(Step(key, False))
    return Lookup(name, tuple(parsed_steps))
