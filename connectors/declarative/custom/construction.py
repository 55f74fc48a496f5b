"""Construction of the objects that implement components: what their classes get.

A class gets, by name: the fields of its component in the manifest, the parameters that reach it, `config`,
`parameters`, and what a component around it hands down, such as the `decoder`. Of these, it gets those for
which it has a parameter or an annotation.

Spec: the components of the Airbyte CDK in Python.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, get_args, get_origin, get_type_hints

from connectors.declarative.manifest.builder import Builder
from connectors.declarative.manifest.components import Component, Custom
from connectors.declarative.manifest.report import Report
from connectors.declarative.manifest.shapes import NAMES, TYPES, shape
from connectors.declarative.manifest.template import Template
from elt_assets.errors import ConfigError, EltError, SystemFailure

Nested = Callable[[Component], Any]
"""Makes the object that a class gets for a component in one of its fields."""

_OWN = frozenset({"place", "parameters", "class_name", "options"})
PARAMETERS = "$parameters"


def construct(
    cls: Any, component: Custom, given: Mapping[str, Any], config: Mapping[str, Any], nested: Nested
) -> Any:
    """Return an object of a class.

    Args:
        cls: the class.
        component: the component that it implements.
        given: what a component around it hands down.
        config: the config of the source.
        nested: makes what it gets for components.

    Raises:
        ConfigError: the manifest lacks something that the class needs.
        EltError: the class fails.
    """
    hints = _hints(cls)
    found: dict[str, Any] = {**component.options, **given}
    for each in fields(component):
        if each.name not in _OWN and getattr(component, each.name) is not None:
            found[each.name] = getattr(component, each.name)
    accepted, required = _parameters(cls, hints)
    arguments = {
        name: _argument(each, hints.get(name), f"{component.place}.{name}", nested)
        for name, each in found.items()
        if name in accepted
    }
    own = {"config": config, "parameters": dict(component.parameters)}
    arguments = {**{name: own[name] for name in own if name in accepted}, **arguments}
    missing = [name for name in required if name not in arguments]
    if missing:
        raise ConfigError(
            f"{component.place}: the class {component.class_name!r} needs {', '.join(missing)}",
            guidance="add them to the component in the manifest",
        )
    try:
        return cls(**arguments)
    except EltError:
        raise
    except Exception as error:
        raise SystemFailure(
            f"{component.place}: an object of {component.class_name!r} cannot be made: "
            f"{type(error).__name__}: {error}",
            guidance="correct the class, or what the manifest gives to it",
        ) from error


def written(value: Any) -> Any:
    """Return what a manifest contains for a value: mappings, lists and plain values."""
    if isinstance(value, Component):
        return _definition(value)
    if isinstance(value, Template):
        return value.text
    if isinstance(value, Mapping):
        return {name: written(each) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return [written(each) for each in value]
    return value


def _definition(component: Component) -> dict[str, Any]:
    found: dict[str, Any] = {"type": NAMES[type(component)]} if component.has_type else {}
    if isinstance(component, Custom):
        found |= {"class_name": component.class_name, **written(component.options)}
    for name in shape(type(component)):
        if name not in _OWN and getattr(component, name) is not None:
            found[name] = written(getattr(component, name))
    if component.parameters:
        found[PARAMETERS] = dict(component.parameters)
    return found


def _argument(value: Any, hint: Any, place: str, nested: Nested) -> Any:
    """Return what a class gets for a value of the manifest."""
    if isinstance(value, Component):
        return nested(value)
    if isinstance(value, tuple | list):
        return [_argument(each, hint, f"{place}[{at}]", nested) for at, each in enumerate(value)]
    if isinstance(value, Mapping) and "type" not in value:
        kind = _component_of(hint)
        if kind is not None:
            return nested(_built(kind, value, place))
    return written(value)


def _built(kind: type[Component], value: Mapping[str, Any], place: str) -> Component:
    """Return the component of a mapping without a type."""
    report = Report()
    found = Builder(report).build(kind, written(value), place, {})
    report.raise_problems(place)
    assert found is not None
    return found


def _component_of(hint: Any) -> type[Component] | None:
    """Return the component class that an annotation such as `Optional[List[RequestOption]]` names; None if it
    names none."""
    while get_origin(hint) is not None:
        hint = next((each for each in get_args(hint) if each is not types.NoneType), None)
    return TYPES.get(getattr(hint, "__name__", ""))


def _parameters(cls: Any, hints: Mapping[str, Any]) -> tuple[set[str], list[str]]:
    """Return the names of the arguments that a class accepts, and of those that it needs."""
    try:
        found = inspect.signature(cls).parameters.values()
    except (TypeError, ValueError):
        return set(hints), []
    named = [each for each in found if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    accepted = {each.name for each in named}
    if any(each.kind is each.VAR_KEYWORD for each in found):
        accepted |= set(hints)
    return accepted, [each.name for each in named if each.default is each.empty]


def _hints(cls: Any) -> dict[str, Any]:
    try:
        return get_type_hints(cls)
    except Exception:  # noqa: BLE001 - an annotation may name what is imported for type checkers only
        parents = reversed(getattr(cls, "__mro__", ()))
        return {
            name: each for one in parents for name, each in inspect.get_annotations(one).items()
        }
