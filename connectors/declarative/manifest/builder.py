"""Builds components from the plain values of a manifest whose references are resolved.

`$parameters` reach down into all components within. A parameter with the name of a field is the value of that
field, unless the component sets it, and does not reach into the components in that field.

Spec: the component transformer of the Airbyte CDK.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, TypeVar, Union

import msgspec
from jinja2.exceptions import TemplateSyntaxError

from connectors.declarative.manifest.components import Component, Json
from connectors.declarative.manifest.evaluation.programs import VARIABLES, check
from connectors.declarative.manifest.references import BROKEN
from connectors.declarative.manifest.report import Report
from connectors.declarative.manifest.shapes import (
    NAMES,
    PYTHON,
    TYPES,
    Field,
    Shape,
    fields,
    shape_of,
    types_without_class,
)
from connectors.declarative.manifest.template import Template, templates

PARAMETERS = "$parameters"


class Propagation:
    """Writes `type` and `$parameters` into each component.

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


C = TypeVar("C", bound=Component)

_NO_FIELDS = frozenset({"type", "$schema", PARAMETERS})
_STREAMS, _TEMPLATES = "streams", "dynamic_streams"
"""The places of lists whose items are refused one by one."""
_AIRBYTE_ACTIONS = frozenset({"REDUCE_PAGE_SIZE", "RESET_PAGINATION", "SPLIT_REQUEST_WINDOW"})
"""The actions of error handlers that Airbyte's engine knows and this one does not."""
_DROPPED = "CustomIncrementalSync"
"""The component in Python that manifests may name, and that Airbyte's engine does not have any more."""
_MAX_SHOWN = 80


class Builder:
    """Builds components, and reports what is wrong with what they are built from.

    Args:
        report: where problems and warnings are reported.
        trusted: the modules whose classes a manifest may name; those within them are included.

    Attributes:
        templates_of_streams: what each component with a `stream_template` has there, by its place; types and
            `$parameters` are written out in it.
        names: the name of each stream by its place.
    """

    def __init__(self, report: Report, trusted: Sequence[str] = ()):
        self.templates_of_streams: dict[str, dict[str, Any]] = {}
        self.names: dict[str, Any] = {}
        self._report = report
        self._trusted = tuple(trusted)

    def build(self, cls: type[C], content: Json, place: str, inherited: Json) -> C | None:
        """Return a component.

        Args:
            cls: its class.
            content: what the manifest contains for it.
            place: its place in the manifest.
            inherited: the parameters that reach it.

        Returns:
            The component; None if a problem was reported.
        """
        shape = shape_of(cls)
        propagated = Propagation(self._report).apply(shape, content, place, inherited)
        component = self.convert(shape, propagated, place)
        return None if component is BROKEN else component

    def convert(self, shape: Shape, value: Any, place: str, parameters: Json | None = None) -> Any:
        """Return the value of a field; `BROKEN` if a problem was reported.

        Args:
            shape: what it may be.
            value: what the manifest contains for it, after the propagation.
            place: its place in the manifest.
            parameters: what its templates know as `parameters`.
        """
        parameters = parameters or {}
        if value is BROKEN or (shape.is_raw and not shape.is_map):
            return value
        if isinstance(value, dict) and shape.types:
            return self._convert_component(shape, value, place)
        if isinstance(value, dict | list) and shape.is_map:
            return self._convert_map(shape, value, place, parameters)
        if isinstance(value, list) and shape.item is not None:
            return self._convert_list(shape.item, value, place, parameters)
        if isinstance(value, dict) and shape.entry is not None:
            return self._convert_mapping(shape.entry, value, place, parameters)
        return self._convert_scalar(shape, value, place, parameters)

    def _convert_scalar(self, shape: Shape, value: Any, place: str, parameters: Json) -> Any:
        if shape.is_raw or (isinstance(value, str) and value in shape.choices):
            return value
        if shape.is_template and isinstance(value, str):
            return self._make_template(value, place, parameters)
        plain_value = self._convert_plain(shape.plain, value, place)
        if plain_value is not BROKEN:
            return plain_value
        if shape.is_template and isinstance(value, bool | int | float):
            return Template(str(value), place, parameters, value)
        return self._report_misfit(shape, value, place)

    def _convert_plain(self, types: tuple[type, ...], value: Any, place: str) -> Any:
        """Return a value as one of some types; `BROKEN` if it is of none of them."""
        if type(value) in types:
            return value
        if str in types and isinstance(value, (int, float)):
            return str(value)
        if not types:
            return BROKEN
        try:
            plain_value = msgspec.convert(value, Union[types], strict=False)  # noqa: UP007 - a tuple
        except msgspec.ValidationError:
            return BROKEN
        if isinstance(value, str):
            self._report.add_warning(place, f"{value!r} is a text; {plain_value!r} is meant")
        return plain_value

    def _convert_map(self, shape: Shape, value: Any, place: str, parameters: Json) -> Any:
        """Return a mapping or a list with its texts as templates."""
        entries = value.items() if isinstance(value, dict) else ()
        refused = [
            self._refuse(f"{place}.{key}", part["type"], {**part, PARAMETERS: parameters})
            for key, part in entries
            if isinstance(part, dict) and str(part.get("type")) in shape.entries
        ]
        return BROKEN if refused else templates(value, place, parameters, self._make_template)

    def _convert_mapping(self, shape: Shape, value: Json, place: str, parameters: Json) -> Any:
        values = {
            key: self.convert(shape, part, f"{place}.{key}", parameters)
            for key, part in value.items()
        }
        return BROKEN if BROKEN in values.values() else values

    def _convert_list(self, shape: Shape, value: list[Any], place: str, parameters: Json) -> Any:
        parts = enumerate(value)
        items = [
            self.convert(shape, part, f"{place}[{index}]", parameters) for index, part in parts
        ]
        if place in (_STREAMS, _TEMPLATES):
            for index, part in enumerate(value if place == _STREAMS else ()):
                if isinstance(part, dict) and isinstance(part.get("name"), str):
                    self.names[f"{place}[{index}]"] = part["name"]
            usable = (not self._report.refuses(f"{place}[{index}]") for index in range(len(items)))
            items = list(itertools.compress(items, usable))
        return BROKEN if BROKEN in items else tuple(items)

    # --- components -----------------------------------------------------------------------------

    def _convert_component(self, shape: Shape, content: Json, place: str) -> Any:
        name = content.get("type") if shape.has_type else shape.types[0]
        expected = " or ".join(sorted(shape.types))
        if name is None:
            self._report.add_problem(place, f"it has no `type`; it must be {expected}")
        elif not isinstance(name, str):
            self._report.add_problem(f"{place}.type", "it must be a text")
        elif name not in shape.types:
            exists = name in TYPES or name in types_without_class()
            reason = (
                f"{name} cannot stand here" if exists else f"{name!r} is not a known component type"
            )
            self._report.add_problem(place, f"{reason}; expected {expected}")
        elif name in TYPES:
            return self._build(TYPES[name], content, place)
        elif name.startswith(PYTHON):
            return self._refuse_python(name, content, place)
        else:
            return self._refuse(place, name, content)
        return BROKEN

    def _build(self, cls: type[Component], content: Json, place: str) -> Any:
        parameters = content[PARAMETERS]
        values: dict[str, Any] = {}
        for name, field in fields(cls).items():
            value = content.get(name)
            inner = f"{place}.{name}" if place else name
            if value is not None and field.shape.is_unsupported:
                values[name] = self._refuse(inner, f"`{name}` of {NAMES[cls]}", value)
            elif value is not None:
                values[name] = self.convert(field.shape, value, inner, parameters)
            elif field.is_required:
                self._report.add_problem(place, f"the required field `{name}` is missing")
                values[name] = BROKEN
        for name in content:
            if not (name in fields(cls) or name in _NO_FIELDS or name in parameters):
                warning = f"{NAMES[cls]} has no field `{name}`; it is ignored"
                self._report.add_warning(place, warning)
        if "stream_template" in fields(cls):
            self.templates_of_streams[place] = content.get("stream_template", {})
        if BROKEN in values.values():
            return BROKEN
        return cls(place=place, parameters=parameters, **values)

    # --- what only Airbyte's engine runs -----------------------------------------------------------

    def _refuse(self, place: str, subject: str, content: Any) -> Any:
        self._report.add_reason_for_airbyte(
            place, f"{subject} is not supported by this engine, but by Airbyte's"
        )
        self._check_trust(content, place)
        return BROKEN

    def _refuse_python(self, kind: str, content: Json, place: str) -> Any:
        """Report a component that a class in Python implements."""
        name = content.get("class_name")
        if not isinstance(name, str):
            self._report.add_problem(place, "the required field `class_name` is missing")
        elif kind == _DROPPED:
            text = (
                f"{_DROPPED} is not supported, since airbyte-cdk 7 does not have it; use "
                "DatetimeBasedCursor, or run the connector as a `package` or an `image`"
            )
            self._report.add_refusal(place, text)
        elif self._trusts(name):
            self._report.add_reason_for_airbyte(
                place, f"the class {name!r} is Python, for Airbyte's engine"
            )
        self._check_trust(content, place)
        return BROKEN

    def _check_trust(self, content: Any, place: str) -> None:
        """Report each Python class of an untrusted module, in a part that only Airbyte's engine builds."""
        if isinstance(content, list):
            for index, part in enumerate(content):
                self._check_trust(part, f"{place}[{index}]")
        elif isinstance(content, dict):
            name = content.get("class_name")
            if isinstance(name, str) and not self._trusts(name):
                text = f"the class {name!r} is Python; it runs only if its module is trusted"
                self._report.add_refusal(place, text)
            for key, part in content.items():
                self._check_trust(part, f"{place}.{key}")

    def _trusts(self, name: str) -> bool:
        return any(f"{name.rpartition('.')[0]}.".startswith(f"{part}.") for part in self._trusted)

    # --- templates and problems -----------------------------------------------------------------

    def _make_template(self, text: str, place: str, parameters: Any) -> Template:
        if "{" in text:
            try:
                names = check(text)
            except (TemplateSyntaxError, RecursionError) as error:
                reason = getattr(error, "message", None) or "it is nested too deep"
                problem = f"the template {_short(text)} does not compile: {reason}"
                self._report.add_problem(place, problem)
                names = frozenset()
            for name in sorted(names - VARIABLES):
                warning = f"the template {_short(text)} uses the unknown variable {name!r}"
                self._report.add_warning(place, warning)
        return Template(text, place, parameters)

    def _report_misfit(self, shape: Shape, value: Any, place: str) -> Any:
        if isinstance(value, str) and value in _AIRBYTE_ACTIONS:
            return self._refuse(place, value, value)
        self._report.add_problem(place, f"{_short(value)} is not {shape.words}")
        return BROKEN


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
