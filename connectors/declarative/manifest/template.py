"""Templates: the texts of a manifest that contain expressions, and how they are evaluated.

    template = Template("{{ config['region'] }}.api.example")
    template.text_of({"config": {"region": "eu"}})  # "eu.api.example"

Spec: string interpolation of Airbyte's low-code manifests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jinja2.exceptions import SecurityError, TemplateSyntaxError, UndefinedError

from connectors.declarative.manifest.evaluation.literals import Types, literal, native
from connectors.declarative.manifest.evaluation.programs import (
    UNDEFINED,
    Constant,
    MissingVariable,
    Program,
    Variables,
    compile_template,
)
from connectors.declarative.manifest.evaluation.sandbox import LimitExceeded
from elt_assets.errors import ConfigError
from elt_assets.protocol.specification import PATTERN_SECONDS

__all__ = [
    "Template",
    "TemplateError",
    "TemplateMap",
    "UndefinedValue",
    "Variables",
    "WrongType",
    "templates",
    "value",
]

_FALSE = ("False", "false", "{}", "[]", "()", "", "0", "0.0")
_MAX_CHARACTERS = 200


class TemplateError(ConfigError):
    """A template that cannot be evaluated. The message names its place and its text, and quotes no value."""


class UndefinedValue(TemplateError):
    """A template that reads a field of something that is missing."""


class WrongType(TemplateError):
    """A template that does something with a value of the wrong type, such as adding to None."""


class Template:
    """A text that may contain expressions.

    It is compile_template when it is first needed. Two templates with the same text are equal.

    Attributes:
        text: the text as the manifest has it.
        place: the place in the manifest, for errors.
        parameters: the value of the variable `parameters`, unless an evaluation has one.
        scalar: the number or boolean that the manifest has in place of a text; None for a text.
    """

    __slots__ = ("_compiled", "parameters", "place", "scalar", "text")

    def __init__(
        self,
        text: str,
        place: str = "",
        parameters: Mapping[str, Any] | None = None,
        scalar: float | bool | None = None,
    ):
        self.text = text
        self.scalar = scalar
        self.place = place
        self.parameters: Mapping[str, Any] = parameters or {}
        self._compiled: Program | None = None

    @property
    def names(self) -> frozenset[str]:
        """The names of the variables that the template uses."""
        return self._program.names

    @property
    def is_constant(self) -> bool:
        """True if the text contains no expression."""
        return isinstance(self._program, Constant)

    def evaluate(self, variables: Variables, types: Types = ()) -> Any:
        """Return the value of the template.

        Like the CDK, a text that is a Python literal becomes its value: "{{ 1 + 1 }}" gives 2, "[1]" a list.

        Args:
            variables: the variables by name.
            types: the types that a literal may have; another one is left as text. Empty for all.

        Returns:
            The value; an empty text if the template gives none.

        Raises:
            UndefinedValue: the template reads a field of something that is missing.
            WrongType: it meets a value of the wrong type. The CDK returns the text of the template then.
            TemplateError: it fails in another way.
        """
        try:
            result = self._program.value(self._all(variables))
            if result is UNDEFINED or result == "":
                return ""
            return literal(result, types) if type(result) is str else native(result, types)
        except Exception as error:  # noqa: BLE001 - whatever an expression raises
            raise self._failure(error) from None

    def value_of(self, variables: Variables, types: Types = ()) -> Any:
        """Return the value of the template for a record or a request, in which a text stays a text.

        An expression has the type of its value: `{{ record.zip }}` keeps the text "01234". So has a template
        of which one expression leaves something, such as one with `if`; a number that is written in a branch
        is a number. A text without an expression is as it is written, less the quotes of a text literal. A
        text that expressions are parts of is a text, unless it is a list or an object as a Python literal,
        such as `[{{ record.a }}, {{ record.b }}]`. The CDK makes literals of all: `1.10` becomes 1.1.

        Args:
            variables: the variables by name.
            types: the types that a value may have which is no text; another one becomes text. Empty for all.

        Raises:
            TemplateError: as for `evaluate`.
        """
        if self.scalar is not None:
            return self.scalar
        try:
            pieces = self._program.pieces(self._all(variables))
            if len(pieces) > 1:
                parts = [piece for piece in pieces if str(piece).strip()]
                pieces = parts if len(parts) == 1 and type(parts[0]) is not str else pieces
            if len(pieces) == 1 and not self.is_constant:
                result = pieces[0]
                return result if type(result) is str else native(result, types)
            text = "".join(map(str, pieces))
            parsed = literal(text) if text else text
            if isinstance(parsed, str) and parsed is not text:
                return parsed
            is_structure = isinstance(parsed, (list, dict)) and not self.is_constant
            return parsed if is_structure and (not types or isinstance(parsed, types)) else text
        except Exception as error:  # noqa: BLE001 - whatever an expression raises
            raise self._failure(error) from None

    def evaluate_or(self, default: Any, variables: Variables, types: Types = ()) -> Any:
        """Return the value of the template, or a default if it gives an empty text or misses a field.

        Raises:
            TemplateError: the template fails in another way.
        """
        try:
            result = self.evaluate(variables, types)
        except UndefinedValue:
            return default
        return default if isinstance(result, str) and result == "" else result

    def is_true(self, variables: Variables) -> bool:
        """Return the value of the template as a condition.

        False, None, an empty text, list or mapping, 0 and a missing field are false. All else is true, as in
        the CDK: a template that meets a value of the wrong type, too.

        Raises:
            TemplateError: the template fails.
        """
        try:
            result = self.evaluate_or(False, variables)
        except WrongType:
            return True
        if isinstance(result, str):
            return result not in _FALSE
        return bool(result)

    def text_of(self, variables: Variables) -> str:
        """Return the value of the template as text.

        It is the rendered text, so an identifier such as "007" or "1.10" stays as it is; only the quotes of a
        text literal are removed.

        Raises:
            TemplateError: the template fails, as for `evaluate`.
        """
        try:
            text = self._program.text(self._all(variables))
            if '"' in text or "'" in text:
                unquoted = literal(text)
                return unquoted if isinstance(unquoted, str) else text
        except Exception as error:  # noqa: BLE001 - whatever an expression raises
            raise self._failure(error) from None
        return text

    @property
    def _program(self) -> Program:
        if self._compiled is None:
            try:
                self._compiled = compile_template(self.text)
            except Exception as error:  # noqa: BLE001 - the parser has limits of its own
                raise self._failure(error) from None
        return self._compiled

    def _all(self, variables: Variables) -> Variables:
        if "parameters" in self._program.names and "parameters" not in variables:
            return {**variables, "parameters": self.parameters}
        return variables

    def _failure(self, error: Exception) -> TemplateError:
        if isinstance(error, TemplateError):
            return error
        text = self.text if len(self.text) <= _MAX_CHARACTERS else f"{self.text[:_MAX_CHARACTERS]}…"
        where = f" at {self.place}" if self.place else ""
        kind = _KINDS.get(type(error), TemplateError)
        return kind(f"the template {text!r}{where} cannot be evaluated: {_reason(error)}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Template) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Template({self.text!r})"


_KINDS: Mapping[type[Exception], type[TemplateError]] = {
    UndefinedError: UndefinedValue,
    TypeError: WrongType,
}


def _reason(error: Exception) -> str:
    """Return why an evaluation failed. The messages of most errors quote values, so they are not repeated."""
    if isinstance(error, MissingVariable):
        return f"the variable {error} is not available here"
    if isinstance(error, LimitExceeded):
        return str(error)
    if isinstance(error, TimeoutError):
        return f"a regular expression takes more than {PATTERN_SECONDS:g} s of processor time"
    if isinstance(error, UndefinedError):
        return "it reads a field of something that is missing"
    if isinstance(error, TemplateSyntaxError):
        return str(error.message)
    if isinstance(error, SecurityError):
        return "it uses an attribute or a function that templates may not use"
    if isinstance(error, TypeError):
        return "it meets a value of the wrong type, such as null"
    return f"an expression fails with {type(error).__name__}"


class TemplateMap(Mapping[str, Any]):
    """A mapping of a manifest whose keys and values may be templates.

    As a mapping it has the texts of the keys, and the values as they are: templates, maps, tuples of these,
    components and plain values.
    """

    __slots__ = ("_items", "_keys")

    def __init__(self, items: Mapping[str, Any], place: str = "", parameters: Any = None):
        self._items = items
        self._keys = [Template(str(key), place, parameters) for key in items]

    @property
    def names(self) -> frozenset[str]:
        """The names of the variables that keys and values use."""
        return names_in((*self._keys, *self._items.values()))

    def evaluate(self, variables: Variables, types: Types = ()) -> dict[str, Any]:
        """Return the mapping with its keys and values evaluated. A value that is empty is left out.

        Args:
            variables: the variables by name.
            types: the types that a value may have which is no text, as for `Template.value_of`.

        Raises:
            TemplateError: a template fails.
        """
        pairs = zip(self._keys, self._items.values(), strict=True)
        evaluated = (
            (key.evaluate(variables, (str,)), value(part, variables, types)) for key, part in pairs
        )
        return {key: part for key, part in evaluated if part is not None}

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"TemplateMap({dict(self._items)!r})"


def templates(
    content: Any,
    place: str = "",
    parameters: Mapping[str, Any] | None = None,
    make: Callable[[str, str, Any], Template] = Template,
) -> Any:
    """Return a value of a manifest with its texts as templates, at any depth.

    Args:
        content: the value.
        place: its place in the manifest.
        parameters: what its templates know as `parameters`.
        make: returns the template of a text.

    Returns:
        A Template for a text, a TemplateMap for a mapping, a tuple for a list; other values as they are.
    """
    if isinstance(content, str):
        return make(content, place, parameters)
    if isinstance(content, Mapping):
        items = {
            str(key): templates(part, f"{place}.{key}", parameters, make)
            for key, part in content.items()
        }
        return TemplateMap(items, place, parameters)
    if isinstance(content, (list, tuple)):
        parts = enumerate(content)
        return tuple(
            templates(part, f"{place}[{index}]", parameters, make) for index, part in parts
        )
    return content


def value(content: Any, variables: Variables, types: Types = ()) -> Any:
    """Return a text, a template, or a mapping or list of these at any depth, with everything evaluated.

    A text stays a text, as for `Template.value_of`. An empty template is None; a value of a mapping that is
    None is left out.

    Raises:
        TemplateError: a template fails.
    """
    if isinstance(content, Template):
        return value_or_none(content, variables, types)
    if isinstance(content, TemplateMap):
        return content.evaluate(variables)
    if isinstance(content, (str, Mapping)):
        return value(templates(content), variables)
    if isinstance(content, (list, tuple)):
        return [value(part, variables) for part in content]
    return content


def value_or_none(template: Template, variables: Variables, types: Types = ()) -> Any:
    """Return `Template.value_of`; None if it gives an empty text or misses a field."""
    try:
        result = template.value_of(variables, types)
    except UndefinedValue:
        return None
    return None if isinstance(result, str) and result == "" else result


def names_in(content: Any) -> frozenset[str]:
    """Return the names of the variables that the templates in a value use."""
    if isinstance(content, (Template, TemplateMap)):
        return content.names
    if isinstance(content, (list, tuple)):
        return frozenset().union(*map(names_in, content))
    return frozenset()
