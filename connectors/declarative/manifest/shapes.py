"""The shape of each component class, read from the type annotations of its fields.

The annotations are the only definition of what a manifest may contain; `components/base.py` says what they
mean.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo

from connectors.declarative.manifest.components import (
    UNSUPPORTED,
    USUAL,
    Component,
    Custom,
)
from connectors.declarative.manifest.template import Template, TemplateMap

ANY = Component
"""A component of any class."""
RAW = Any
"""A value that is taken as it is."""
_BASE = frozenset({"place", "parameters"})
_WORDS: Mapping[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Template: "a text",
    TemplateMap: "a mapping",
}


def _subclasses(cls: type[Component]) -> list[type[Component]]:
    return [
        inner for subclass in cls.__subclasses__() for inner in (subclass, *_subclasses(subclass))
    ]


NAMES: Mapping[type[Component], str] = {
    cls: str(cls.__struct_config__.tag or cls.__name__)
    for cls in _subclasses(Component)
    if cls is not Custom
}
"""The `type` of each component class."""
TYPES: Mapping[str, type[Component]] = {name: cls for cls, name in NAMES.items()}
"""The component classes by the `type` that a manifest gives them."""


@cache
def shape(cls: type[Component]) -> Mapping[str, FieldInfo]:
    """Return the fields of a component class by name."""
    return {field.name: field for field in msgspec.structs.fields(cls) if field.name not in _BASE}


@cache
def members(hint: Any) -> tuple[Any, ...]:
    """Return the types that a value may have: the members of a union, without None."""
    if get_origin(hint) in (Union, types.UnionType):
        return tuple(member for part in get_args(hint) for member in members(part))
    if get_origin(hint) is Annotated and hint.__metadata__[0] in (USUAL, UNSUPPORTED):
        return members(get_args(hint)[0])
    return () if hint is types.NoneType else (hint,)


@cache
def classes(hint: Any) -> tuple[type[Component], ...]:
    """Return the component classes that a mapping may be of."""
    return tuple(
        member
        for member in members(hint)
        if isinstance(member, type) and issubclass(member, Component)
    )


@cache
def item(hint: Any) -> Any:
    """Return the type of the items of a list; None if the value cannot be a list."""
    return next(
        (get_args(member)[0] for member in members(hint) if get_origin(member) is tuple), None
    )


@cache
def entry(hint: Any) -> Any:
    """Return the type of the values of a mapping that is no component; None if it cannot be one."""
    return next(
        (get_args(member)[1] for member in members(hint) if get_origin(member) is Mapping), None
    )


@cache
def components_in_templates(hint: Any) -> Any:
    """Return the type of the components in a map of templates; None if there can be none, or no map."""
    annotated = (member for member in members(hint) if get_origin(member) is Annotated)
    return next((member.__metadata__[0] for member in annotated), None)


@cache
def is_map(hint: Any) -> bool:
    """Return whether the value may be a map of templates."""
    return TemplateMap in members(hint) or components_in_templates(hint) is not None


@cache
def choices(hint: Any) -> tuple[str, ...]:
    """Return the texts of which a value may be one."""
    return tuple(
        choice
        for member in members(hint)
        if get_origin(member) is Literal
        for choice in get_args(member)
    )


@cache
def plain(hint: Any) -> tuple[type, ...]:
    """Return the types of plain values that are possible."""
    return tuple(member for member in members(hint) if member in (bool, int, float, str))


@cache
def usual(hint: Any, is_custom: bool = False) -> type[Component] | None:
    """Return the class of a mapping without `type`; None if it is not known from where it stands.

    Args:
        hint: what may stand there.
        is_custom: whether the mapping names a Python class.
    """
    possible = [cls for cls in classes(hint) if issubclass(cls, Custom) == is_custom]
    if len(possible) == 1 and hint is not ANY:
        return possible[0]
    return None if is_custom else _find_usual(hint)


def _find_usual(hint: Any) -> type[Component] | None:
    if get_origin(hint) is Annotated and hint.__metadata__[0] == USUAL:
        cls: type[Component] = get_args(hint)[0]
        return cls
    parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else ()
    return next(filter(None, map(_find_usual, parts)), None)


@cache
def describe(hint: Any) -> str:
    """Return what a value must be, in words."""
    parts = [NAMES[cls] for cls in classes(hint)]
    parts += [f"one of {', '.join(choices(hint))}"] if choices(hint) else []
    parts += [_WORDS[member] for member in members(hint) if member in _WORDS]
    parts += ["a list"] if item(hint) is not None else []
    parts += ["a mapping"] if entry(hint) is not None or is_map(hint) else []
    return " or ".join(dict.fromkeys(parts))
