"""Propagation of `$parameters` and types: what reaches a component from the components around it.

`$parameters` reach down into all components within. A parameter with the name of a field is the value of that
field, unless the component sets it, and does not reach into the field itself.

Spec: the component transformer of the Airbyte CDK.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connectors.declarative.manifest.components import Component, Custom, Json
from connectors.declarative.manifest.shapes import ANY, NAMES, RAW, TYPES, Kind, shape

PARAMETERS = "$parameters"


def merged(inherited: Json, written: Json, *, parents_win: bool = False) -> Json:
    """Return the parameters that apply to a component.

    Args:
        inherited: the parameters of the components around it.
        written: what the manifest contains for it.
        parents_win: whether a parameter of the components around it wins over its own.
    """
    own = written.get(PARAMETERS)
    if not own or not isinstance(own, dict):
        return inherited
    return {**own, **inherited} if parents_win else {**inherited, **own}


def propagated(kind: Kind, written: Any, inherited: Json, *, parents_win: bool) -> Any:
    """Return a copy of what a component is built from. Types and parameters are written out in it.

    Args:
        kind: what it may be.
        written: what the manifest contains for it.
        inherited: the parameters that reach it.
        parents_win: as in `merged`.
    """
    if isinstance(written, list):
        inner = kind.item or kind
        return [propagated(inner, each, inherited, parents_win=parents_win) for each in written]
    of = _class_of(kind, written)
    if of is None:
        return _propagated_entries(kind, written, inherited, parents_win)
    parameters = merged(inherited, written, parents_win=parents_win)
    found = {key: each for key, each in written.items() if key != PARAMETERS}
    if of.has_type:
        found["type"] = NAMES[of]
        for key, each in parameters.items():
            found[key] = found.get(key) or each
    known = shape(of)
    for key, each in found.items():
        below = without(parameters, key)
        inner = known[key].kind if key in known else ANY if issubclass(of, Custom) else RAW
        found[key] = propagated(inner, each, below, parents_win=parents_win)
    if parameters and of.has_type:
        found[PARAMETERS] = _copied(parameters)
    return found


def _propagated_entries(kind: Kind, written: Any, inherited: Json, parents_win: bool) -> Any:
    """Return a copy of a value that is not a component, but may be a mapping of components."""
    inner = ANY if kind is ANY else kind.entry or Kind(components=kind.within)
    if not isinstance(written, dict) or "type" in written or not (inner is ANY or inner.components):
        return _copied(written)
    return {
        key: propagated(inner, each, inherited, parents_win=parents_win)
        for key, each in written.items()
    }


def _class_of(kind: Kind, written: Any) -> type[Component] | None:
    """Return the class of a value; None if it is not a component that may stand there."""
    if not isinstance(written, dict):
        return None
    if kind.components:
        named = TYPES.get(str(written.get("type")))
        return named or by_position(kind, "class_name" in written)
    return TYPES.get(str(written.get("type"))) if kind is ANY else None


def without(parameters: Json, name: str) -> Json:
    """Return the parameters that reach into the field of a name: all but the one of that name."""
    if name not in parameters:
        return parameters
    return {key: value for key, value in parameters.items() if key != name}


def by_position(kind: Kind, is_custom: bool) -> type[Component] | None:
    """Return the class of a mapping without `type`; None if it is not known from where it stands.

    Args:
        kind: what may stand there.
        is_custom: whether the mapping names a Python class.
    """
    if not is_custom:
        return kind.inferred
    custom = [each for each in kind.components if issubclass(each, Custom)]
    return custom[0] if len(custom) == 1 else None


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copied(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copied(each) for each in value]
    return value
