"""Propagation of `$parameters` and types: what reaches a component from the components around it.

`$parameters` reach down into all components within. A parameter with the name of a field is the value of that
field, unless the component sets it, and does not reach into the components in that field.

Spec: the component transformer of the Airbyte CDK.
"""

from __future__ import annotations

from typing import Any

from connectors.declarative.manifest.components import Json
from connectors.declarative.manifest.report import Report
from connectors.declarative.manifest.shapes import TYPES, Field, Shape, fields

PARAMETERS = "$parameters"


class Propagation:
    """Writes the types and the parameters of components out.

    Args:
        report: where a parameter that is not used is reported, as a warning.
        parents_win: whether a parameter of the components around a component wins over its own.
    """

    def __init__(self, report: Report, *, parents_win: bool = False):
        self._report = report
        self._parents_win = parents_win

    def apply(self, shape: Shape | None, content: Any, place: str, inherited: Json) -> Any:
        """Return what a value is built from, with `type` and `$parameters` in each component in it.

        Values that are no components, and hold none, are those of the manifest itself.

        Args:
            shape: what the value may be.
            content: what the manifest contains for it.
            place: its place in the manifest.
            inherited: the parameters that reach it.
        """
        if shape is None or not isinstance(content, dict | list):
            return content
        if isinstance(content, list):
            items = enumerate(content if shape.item is not None else ())
            return [
                self.apply(shape.item, part, f"{place}[{index}]", inherited)
                for index, part in items
            ] or content
        name = shape.type_of(content)
        if name is not None:
            return self._component(name, content, place, inherited)
        if shape.entry is None or shape.entry.is_raw:
            return content
        return {
            key: self.apply(shape.entry, part, f"{place}.{key}", inherited)
            for key, part in content.items()
        }

    def _component(self, name: str, content: Json, place: str, inherited: Json) -> dict[str, Any]:
        own = content.get(PARAMETERS)
        own = own if isinstance(own, dict) else {}
        parameters = {**own, **inherited} if self._parents_win else {**inherited, **own}
        values = {**content, PARAMETERS: parameters}
        cls = TYPES.get(name)
        if cls is None:
            return {**values, "type": name}
        known_fields = fields(cls)
        if cls.has_type():
            values |= {
                key: value
                for key, value in parameters.items()
                if not content.get(key) and self._fits(key, known_fields.get(key), value, place)
            }
            values["type"] = name
        for key, field in known_fields.items():
            if isinstance(values.get(key), dict | list):
                below = {other: value for other, value in parameters.items() if other != key}
                inner = f"{place}.{key}" if place else key
                values[key] = self.apply(field.shape, values[key], inner, below)
        return values

    def _fits(self, name: str, field: Field | None, parameter: Any, place: str) -> bool:
        """Return False for a parameter that has a field's name by chance: its value is of another type."""
        if field is None or parameter is None or field.shape.accepts(parameter):
            return True
        text = f"the parameter `{name}` is not used here, because its value has another type"
        self._report.add_warning(place, text)
        return False
