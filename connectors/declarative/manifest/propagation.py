"""Propagation of `$parameters` and types: what reaches a component from the components around it.

`$parameters` reach down into all components within. A parameter with the name of a field is the value of that
field, unless the component sets it, and does not reach into the components in that field.

Spec: the component transformer of the Airbyte CDK.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import FieldInfo

from connectors.declarative.manifest.components import Component, Custom, Json
from connectors.declarative.manifest.report import Report
from connectors.declarative.manifest.shapes import (
    ANY,
    NAMES,
    RAW,
    TYPES,
    choices,
    classes,
    components_in_templates,
    entry,
    is_map,
    item,
    members,
    plain,
    shape,
    usual,
)
from connectors.declarative.manifest.template import Template

PARAMETERS = "$parameters"
_CDK = "airbyte_cdk."


class Propagation:
    """Writes the types and the parameters of components out.

    Args:
        report: where a parameter that is not used is reported, as a warning.
        parents_win: whether a parameter of the components around a component wins over its own.
    """

    def __init__(self, report: Report, *, parents_win: bool = False):
        self._report = report
        self._parents_win = parents_win

    def apply(self, hint: Any, content: Any, place: str, inherited: Json) -> Any:
        """Return what a value is built from, with `type` and `$parameters` in each component in it.

        Values that are no components, and hold none, are those of the manifest itself.

        Args:
            hint: what the value may be.
            content: what the manifest contains for it.
            place: its place in the manifest.
            inherited: the parameters that reach it.
        """
        if isinstance(content, list):
            inner = hint if hint is ANY else item(hint)
            if inner is None:
                return content
            items = enumerate(content)
            return [
                self.apply(inner, part, f"{place}[{index}]", inherited) for index, part in items
            ]
        if not isinstance(content, dict):
            return content
        cls = _class_of(hint, content)
        if cls is not None:
            return self._component(cls, content, place, inherited)
        if components_in_templates(hint) is not None:
            inner, typed = components_in_templates(hint), True
        elif hint is ANY and "type" not in content:
            inner, typed = ANY, False
        else:
            inner, typed = entry(hint), False
        if inner is None or inner is RAW:
            return content
        return {
            key: part
            if typed and not (isinstance(part, dict) and "type" in part)
            else self.apply(inner, part, f"{place}.{key}", inherited)
            for key, part in content.items()
        }

    def _component(
        self, cls: type[Component], content: Json, place: str, inherited: Json
    ) -> dict[str, Any]:
        own = content.get(PARAMETERS)
        own = own if isinstance(own, dict) else {}
        parameters = {**own, **inherited} if self._parents_win else {**inherited, **own}
        fields = shape(cls)
        values = {name: value for name, value in content.items() if name != PARAMETERS}
        if cls.has_type():
            values["type"] = NAMES[cls]
            values |= {
                name: value
                for name, value in parameters.items()
                if not content.get(name) and self._fits(fields.get(name), value, place)
            }
        for name, value in values.items():
            if isinstance(value, (dict, list)) and (name in fields or issubclass(cls, Custom)):
                below = {key: part for key, part in parameters.items() if key != name}
                hint = fields[name].type if name in fields else ANY
                inner = f"{place}.{name}" if place else name
                values[name] = self.apply(hint, value, inner, below)
        values[PARAMETERS] = parameters
        return values

    def _fits(self, field: FieldInfo | None, parameter: Any, place: str) -> bool:
        """Return False for a parameter that has a field's name by chance: its value is of another type."""
        if field is None or parameter is None or _accepts(field.type, parameter):
            return True
        text = f"the parameter `{field.name}` is not used here, because its value has another type"
        self._report.add_warning(place, text)
        return False


def _class_of(hint: Any, content: Json) -> type[Component] | None:
    """Return the class of a mapping; None if it is not a component that may stand there."""
    possible = classes(hint)
    name = content.get("type")
    old_name = str(content.get("class_name", ""))
    if name is None and old_name.startswith(_CDK):
        name = old_name
    if name is None:
        return usual(hint, is_custom=bool(old_name))
    cls = TYPES.get(str(name).rpartition(".")[2])
    if cls is not None and issubclass(cls, possible):
        return cls
    return possible[0] if len(possible) == 1 and not possible[0].has_type() else None


def _accepts(hint: Any, value: Any) -> bool:
    """Return whether a value may be of a type, whatever is in it."""
    if Any in members(hint):
        return True
    if isinstance(value, dict):
        return bool(classes(hint) or entry(hint) or is_map(hint))
    if isinstance(value, list):
        return item(hint) is not None or is_map(hint)
    is_text = Template in members(hint)
    if isinstance(value, str):
        return is_text or str in plain(hint) or bool(choices(hint))
    return is_text or bool(plain(hint))
