"""The shape of each component class: for each field, how a value of the manifest becomes the field's value.

It is read from the type annotations of the classes, which are the only definition of what a manifest may
contain.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

from connectors.declarative.manifest import components
from connectors.declarative.manifest.components import INFERRED, Component, Custom
from connectors.declarative.manifest.template import Template, TemplateMap

_BASE = frozenset({"place", "parameters"})


def _subclasses(of: type[Component]) -> list[type[Component]]:
    found = []
    for each in of.__subclasses__():
        found += [each, *_subclasses(each)]
    return found


TYPES: Mapping[str, type[Component]] = {
    each.type_name or each.__name__: each for each in _subclasses(Component) if each is not Custom
}
"""The component classes by the `type` that a manifest gives them."""
NAMES: Mapping[type[Component], str] = {each: name for name, each in TYPES.items()}
"""The `type` of each component class."""


@dataclass
class Kind:
    """The values that are possible: the members of a union of types.

    Attributes:
        components: the component classes.
        inferred: the class of a mapping without `type`, if it is known.
        plain: the plain types.
        choices: the texts that are allowed; None for all.
        item: what the items of a list may be; None if it cannot be a list.
        entry: what the values of a mapping may be; None if it cannot be a mapping.
        template, template_map: a text, or a mapping or list of texts, that is evaluated.
        within: component classes that may stand in the template map.
        anything: any value is taken as it is.
    """

    components: tuple[type[Component], ...] = ()
    inferred: type[Component] | None = None
    plain: frozenset[type] = frozenset()
    choices: tuple[str, ...] | None = None
    item: Kind | None = None
    entry: Kind | None = None
    template: bool = False
    template_map: bool = False
    within: tuple[type[Component], ...] = ()
    anything: bool = False

    @property
    def holds_components(self) -> bool:
        """True if a component may stand in the value, other than in a template map."""
        inner = (each for each in (self.item, self.entry) if each is not None)
        return bool(self.components) or any(each.holds_components for each in inner)

    def accepts(self, value: Any) -> bool:
        """Return True if a value has a type that is possible, whatever is in it."""
        if self.anything:
            return True
        if isinstance(value, dict):
            return bool(self.components or self.entry or self.template_map)
        if isinstance(value, list):
            return bool(self.item or self.template_map)
        if isinstance(value, str):
            return self.template or str in self.plain or self.choices is not None
        return self.template or bool(self.plain)

    def described(self) -> str:
        """Return what a value must be, in words."""
        parts = [NAMES[each] for each in self.components]
        if self.choices is not None:
            parts.append(f"one of {', '.join(self.choices)}")
        parts += [_WORDS[each] for each in (bool, int, float, str) if each in self.plain]
        parts += ["a text"] if self.template and str not in self.plain else []
        parts += ["a list"] if self.item else []
        parts += ["a mapping"] if self.entry or self.template_map else []
        return " or ".join(parts)


ANY = Kind()
"""A component of any class."""
RAW = Kind(anything=True)
"""A value that is taken as it is."""

_WORDS: Mapping[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
}


@dataclass(frozen=True)
class Field:
    """A field of a component class."""

    name: str
    kind: Kind
    required: bool


def shape(of: type[Component]) -> Mapping[str, Field]:
    """Return the fields of a component class by name."""
    if of not in _shapes:
        _shapes[of] = _shape(of)
    return _shapes[of]


_shapes: dict[type[Component], Mapping[str, Field]] = {}


def _shape(of: type[Component]) -> Mapping[str, Field]:
    hints = get_type_hints(of, globalns=vars(components), localns=_LOCAL, include_extras=True)
    found = {}
    for each in fields(of):
        if each.name in _BASE or (issubclass(of, Custom) and each.name == "options"):
            continue
        kind = _kind(hints[each.name])
        _infer(kind, each.metadata.get(INFERRED))
        required = each.default is MISSING and each.default_factory is MISSING
        found[each.name] = Field(each.name, kind, required)
    return found


_LOCAL = {
    "Annotated": Annotated,
    "Any": Any,
    "ClassVar": ClassVar,
    "Literal": Literal,
    "Mapping": Mapping,
    "Template": Template,
    "TemplateMap": TemplateMap,
}
"""The names in annotations that are not component classes."""


def _kind(hint: Any) -> Kind:
    kind = Kind()
    for member in _members(hint):
        _add(kind, member)
    return kind


def _members(hint: Any) -> tuple[Any, ...]:
    if get_origin(hint) in (Union, types.UnionType):
        return tuple(each for part in get_args(hint) for each in _members(part))
    return (hint,)


def _add(kind: Kind, member: Any) -> None:
    origin, args = get_origin(member), get_args(member)
    if member is Any:
        kind.anything = True
    elif member is Template:
        kind.template = True
    elif member is TemplateMap:
        kind.template_map = True
    elif origin is Annotated:
        kind.template_map, kind.within = True, args[1:]
    elif origin is Literal:
        kind.choices = args
    elif origin is tuple:
        kind.item = _kind(args[0])
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        kind.entry = _kind(args[1])
    elif issubclass(member, Component):
        kind.components += (member,)
    elif member is not type(None):
        kind.plain |= {member}


def _infer(kind: Kind, name: str | None) -> None:
    """Set the class of mappings without `type`: the one that the field names, or the only one."""
    for part in (kind.item, kind.entry):
        if part is not None:
            _infer(part, name)
    usual = [each for each in kind.components if not issubclass(each, Custom)]
    if name is not None and TYPES[name] in kind.components:
        kind.inferred = TYPES[name]
    elif len(usual) == 1:
        kind.inferred = usual[0]
