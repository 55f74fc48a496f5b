"""Templates: the texts of a manifest that contain expressions, and how they are evaluated.

    template = Template("{{ config['region'] }}.api.example")
    template.text_of({"config": {"region": "eu"}})  # "eu.api.example"

Spec: string interpolation of Airbyte's low-code manifests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from jinja2.exceptions import SecurityError, TemplateSyntaxError, UndefinedError

from connectors.declarative.manifest.evaluation.literals import Types, literal, native
from connectors.declarative.manifest.evaluation.programs import (
    UNDEFINED,
    Constant,
    MissingVariable,
    Program,
    Variables,
    compiled,
)
from connectors.declarative.manifest.evaluation.sandbox import LimitExceeded
from elt_assets.errors import ConfigError
from elt_assets.protocol.patterns import PATTERN_SECONDS

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
_SHOWN = 200


class TemplateError(ConfigError):
    """A template that cannot be evaluated. The message names its place and its text, and quotes no value."""


class UndefinedValue(TemplateError):
    """A template that reads a field of something that is missing."""


class WrongType(TemplateError):
    """A template that does something with a value of the wrong type, such as adding to None."""


class Template:
    """A text that may contain expressions.

    It is compiled when it is first needed. Two templates with the same text are equal.

    Attributes:
        text: the text as the manifest has it.
        place: the place in the manifest, for errors.
        parameters: the value of the variable `parameters`, unless an evaluation has one.
    """

    __slots__ = ("_compiled", "parameters", "place", "text")

    def __init__(self, text: str, place: str = "", parameters: Mapping[str, Any] | None = None):
        self.text = text
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
            found = self._program.value(self._all(variables))
            if found is UNDEFINED or found == "":
                return ""
            return literal(found, types) if type(found) is str else native(found, types)
        except Exception as error:  # noqa: BLE001 - whatever an expression raises
            raise self._failure(error) from None

    def evaluate_or(self, default: Any, variables: Variables, types: Types = ()) -> Any:
        """Return the value of the template, or a default if it gives an empty text or misses a field.

        Raises:
            TemplateError: the template fails in another way.
        """
        try:
            found = self.evaluate(variables, types)
        except UndefinedValue:
            return default
        return default if isinstance(found, str) and found == "" else found

    def is_true(self, variables: Variables) -> bool:
        """Return the value of the template as a condition.

        False, None, an empty text, list or mapping, 0 and a missing field are false. All else is true, as in
        the CDK: a template that meets a value of the wrong type, too.

        Raises:
            TemplateError: the template fails.
        """
        try:
            found = self.evaluate_or(False, variables)
        except WrongType:
            return True
        if isinstance(found, str):
            return found not in _FALSE
        return bool(found)

    def text_of(self, variables: Variables) -> str:
        """Return the value of the template as text.

        It is the rendered text, so an identifier such as "007" or "1.10" stays as it is; only the quotes of a
        text literal are removed.

        Raises:
            TemplateError: the template fails, as for `evaluate`.
        """
        try:
            found = self._program.text(self._all(variables))
            if '"' in found or "'" in found:
                unquoted = literal(found)
                return unquoted if isinstance(unquoted, str) else found
        except Exception as error:  # noqa: BLE001 - whatever an expression raises
            raise self._failure(error) from None
        return found

    @property
    def _program(self) -> Program:
        if self._compiled is None:
            try:
                self._compiled = compiled(self.text)
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
        shown = self.text if len(self.text) <= _SHOWN else f"{self.text[:_SHOWN]}…"
        where = f" at {self.place}" if self.place else ""
        kind = _KINDS.get(type(error), TemplateError)
        return kind(f"the template {shown!r}{where} cannot be evaluated: {_reason(error)}")

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

    def evaluate(self, variables: Variables) -> dict[str, Any]:
        """Return the mapping with its keys and values evaluated. A value that is empty is left out.

        Raises:
            TemplateError: a template fails.
        """
        pairs = zip(self._keys, self._items.values(), strict=True)
        found = ((key.evaluate(variables, (str,)), value(each, variables)) for key, each in pairs)
        return {key: each for key, each in found if each is not None}

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"TemplateMap({dict(self._items)!r})"


def templates(written: Any, place: str = "", parameters: Mapping[str, Any] | None = None) -> Any:
    """Return a value of a manifest with its texts as templates, at any depth.

    Returns:
        A Template for a text, a TemplateMap for a mapping, a tuple for a list; other values as they are.
    """
    if isinstance(written, str):
        return Template(written, place, parameters)
    if isinstance(written, Mapping):
        items = {
            key: templates(each, f"{place}.{key}", parameters) for key, each in written.items()
        }
        return TemplateMap(items, place, parameters)
    if isinstance(written, (list, tuple)):
        return tuple(
            templates(each, f"{place}[{index}]", parameters) for index, each in enumerate(written)
        )
    return written


def value(written: Any, variables: Variables) -> Any:
    """Return a text, a template, or a mapping or list of these at any depth, with everything evaluated.

    An empty template is None; a value of a mapping that is None is left out.

    Raises:
        TemplateError: a template fails.
    """
    if isinstance(written, Template):
        return written.evaluate_or(None, variables)
    if isinstance(written, TemplateMap):
        return written.evaluate(variables)
    if isinstance(written, (str, Mapping)):
        return value(templates(written), variables)
    if isinstance(written, (list, tuple)):
        return [value(each, variables) for each in written]
    return written


def names_in(written: Any) -> frozenset[str]:
    """Return the names of the variables that the templates in a value use."""
    if isinstance(written, (Template, TemplateMap)):
        return written.names
    if isinstance(written, (list, tuple)):
        return frozenset().union(*map(names_in, written))
    return frozenset()
