"""The shape of each component class, read from the type annotations of its fields.

The annotations are the only definition of what a manifest may contain; `components/base.py` says what they
mean.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from connectors.declarative.manifest.components import UNSUPPORTED, USUAL, Component, Json
from connectors.declarative.manifest.template import Template, TemplateMap

PYTHON = "Custom"
"""The beginning of the types of components in Python."""
_CDK = "airbyte_cdk."
_BASE = frozenset({"place", "parameters"})
_PLAIN = (bool, int, float, str)
_WORDS: Mapping[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
}


def _subclasses(cls: type[Component]) -> Iterator[type[Component]]:
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


NAMES: Mapping[type[Component], str] = {
    cls: str(cls.__struct_config__.tag or cls.__name__) for cls in _subclasses(Component)
}
"""The `type` of each component class."""
TYPES: Mapping[str, type[Component]] = {name: cls for cls, name in NAMES.items()}
"""The component classes by the `type` that a manifest gives them."""


@dataclass(frozen=True, eq=False)
class Shape:
    """What a value of a manifest may be."""

    types: tuple[str, ...]
    """The types of components, first those that have a class."""
    usual: str | None
    """The type of a mapping without `type`; None if it is not known from where it stands."""
    item: Shape | None
    """What the items of a list may be; None if the value cannot be a list."""
    entry: Shape | None
    """What the values of a mapping that is no component may be; None if it cannot be one."""
    entries: frozenset[str]
    """The types of components that may be values of a map of templates, and have no class."""
    choices: tuple[str, ...]
    """The texts of which a value may be one."""
    plain: tuple[type, ...]
    """The types of plain values."""
    is_template: bool
    is_map: bool
    """Whether it may be a map of templates."""
    is_raw: bool
    """Whether a value is taken as it is."""
    is_unsupported: bool
    """Whether a value is for Airbyte's engine only."""

    @property
    def has_type(self) -> bool:
        """Return False if mappings need no `type`, because they are of one class that has none."""
        cls = TYPES.get(self.types[0]) if len(self.types) == 1 else None
        return cls is None or cls.has_type()

    def type_of(self, content: Json) -> str | None:
        """Return the type of a mapping; None if it is not a component that may stand here."""
        name, class_name = content.get("type"), str(content.get("class_name", ""))
        if name is None and class_name.startswith(_CDK):
            name = class_name
        if name is None:
            is_python = bool(class_name)
            possible = [part for part in self.types if part.startswith(PYTHON) == is_python]
            if len(possible) == 1:
                return possible[0]
            return None if is_python else self.usual
        short_name = str(name).rpartition(".")[2]
        if short_name in self.types:
            return short_name
        return None if self.has_type else self.types[0]

    def accepts(self, value: Any) -> bool:
        """Return whether a value may stand here, whatever is in it."""
        if self.is_raw:
            return True
        if isinstance(value, dict):
            return bool(self.types) or self.entry is not None or self.is_map
        if isinstance(value, list):
            return self.item is not None or self.is_map
        if isinstance(value, str):
            return self.is_template or str in self.plain or bool(self.choices)
        return self.is_template or bool(self.plain)

    @cached_property
    def words(self) -> str:
        """What a value must be, in words."""
        parts = [*self.types]
        parts += [f"one of {', '.join(self.choices)}"] if self.choices else []
        parts += [_WORDS[part] for part in (*self.plain, *([str] if self.is_template else []))]
        parts += ["a list"] if self.item is not None else []
        parts += ["a mapping"] if self.entry is not None or self.is_map else []
        return " or ".join(dict.fromkeys(parts))


@dataclass(frozen=True)
class Field:
    """A field of a component."""

    shape: Shape
    is_required: bool


@cache
def fields(cls: type[Component]) -> Mapping[str, Field]:
    """Return the fields of a component class by name."""
    return {
        field.name: Field(shape_of(field.type), field.required)
        for field in msgspec.structs.fields(cls)
        if field.name not in _BASE
    }


@cache
def shape_of(hint: Any) -> Shape:
    """Return what a value with a type annotation may be."""
    members = list(_members(hint))
    options = [member for member, _ in members]
    classes = {
        NAMES[member]: marks
        for member, marks in members
        if isinstance(member, type) and issubclass(member, Component)
    }
    is_map = TemplateMap in options
    marks = dict.fromkeys(mark for _, marks in members for mark in marks)
    others = [mark for mark in marks if isinstance(mark, str)]
    arguments = {get_origin(member): get_args(member) for member in options}
    return Shape(
        types=(*classes, *(() if is_map else others)),
        usual=next((name for name, marks in classes.items() if USUAL in marks), None),
        item=shape_of(arguments[tuple][0]) if tuple in arguments else None,
        entry=shape_of(arguments[Mapping][1]) if Mapping in arguments else None,
        entries=frozenset(others if is_map else ()),
        choices=arguments.get(Literal, ()),
        plain=tuple(member for member in options if member in _PLAIN),
        is_template=Template in options,
        is_map=is_map,
        is_raw=Any in options,
        is_unsupported=UNSUPPORTED in marks,
    )


@cache
def types_without_class() -> frozenset[str]:
    """Return the types of components that only Airbyte's engine builds."""
    shapes = [field.shape for cls in NAMES for field in fields(cls).values()]
    for shape in shapes:  # grows
        shapes += filter(None, (shape.item, shape.entry))
    return frozenset(
        name for shape in shapes for name in (*shape.types, *shape.entries) if name not in TYPES
    )


def _members(hint: Any, marks: tuple[Any, ...] = ()) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Yield the types in an annotation, each with the marks of `Annotated` around it."""
    if get_origin(hint) is Annotated:
        yield from _members(hint.__origin__, (*marks, *hint.__metadata__))
    elif get_origin(hint) in (Union, types.UnionType):
        for part in get_args(hint):
            yield from _members(part, marks)
    else:
        yield hint, marks
