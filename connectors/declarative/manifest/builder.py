"""Builds components from the plain values of a manifest whose references are resolved."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any, TypeVar, Union

import msgspec
from jinja2.exceptions import TemplateSyntaxError

from connectors.declarative.manifest.components import Component, Custom, Json, Unsupported
from connectors.declarative.manifest.evaluation.programs import VARIABLES, check
from connectors.declarative.manifest.propagation import PARAMETERS, Propagation
from connectors.declarative.manifest.references import BROKEN
from connectors.declarative.manifest.report import Report
from connectors.declarative.manifest.shapes import (
    NAMES,
    TYPES,
    choices,
    classes,
    components_in_templates,
    describe,
    entry,
    is_map,
    item,
    members,
    plain,
    shape,
)
from connectors.declarative.manifest.template import Template, TemplateMap

C = TypeVar("C", bound=Component)

_NO_FIELDS = frozenset({"type", "$schema", PARAMETERS})
_TEMPLATES = "dynamic_streams"
_STREAMS = re.compile(rf"({_TEMPLATES}|(streams\[\d+\]\.)?streams)")
"""The places of lists whose items are refused one by one."""
_AIRBYTE_ACTIONS = frozenset({"REDUCE_PAGE_SIZE", "SPLIT_REQUEST_WINDOW"})
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
        propagated = Propagation(self._report).apply(cls, content, place, inherited)
        component = self.convert(cls, propagated, place)
        return None if component is BROKEN else component

    def convert(self, hint: Any, value: Any, place: str, parameters: Json | None = None) -> Any:
        """Return the value of a field; `BROKEN` if a problem was reported.

        Args:
            hint: what it may be.
            value: what the manifest contains for it, after the propagation.
            place: its place in the manifest.
            parameters: what its templates know as `parameters`.
        """
        if value is BROKEN:
            return BROKEN
        parameters = parameters or {}
        if isinstance(value, dict):
            return self._convert_mapping(hint, value, place, parameters)
        if isinstance(value, list):
            return self._convert_list(hint, value, place, parameters)
        possible = members(hint)
        if Any in possible or (isinstance(value, str) and value in choices(hint)):
            return value
        is_template = Template in possible and value is not None
        if is_template and isinstance(value, str):
            return self._template(value, place, parameters)
        plain_value = self._plain(plain(hint), value, place)
        if plain_value is BROKEN and is_template:
            return Template(str(value), place, parameters, value)
        return self._report_misfit(hint, value, place) if plain_value is BROKEN else plain_value

    def _plain(self, possible: tuple[type, ...], value: Any, place: str) -> Any:
        """Return a value as one of some types; `BROKEN` if it is of none of them."""
        if type(value) in possible:
            return value
        if str in possible and isinstance(value, (int, float)):
            return str(value)
        if not possible:
            return BROKEN
        try:
            plain_value = msgspec.convert(value, Union[possible], strict=False)  # noqa: UP007 - a tuple
        except msgspec.ValidationError:
            return BROKEN
        if isinstance(value, str):
            self._report.add_warning(place, f"{value!r} is a text; {plain_value!r} is meant")
        return plain_value

    def _convert_mapping(self, hint: Any, value: Json, place: str, parameters: Json) -> Any:
        if classes(hint):
            cls = self._find_class(hint, value, place)
            return BROKEN if cls is None else self._build_component(cls, value, place)
        if is_map(hint):
            return self._template_map(components_in_templates(hint), value, place, parameters)
        inner = entry(hint)
        if inner is None:
            return value if Any in members(hint) else self._report_misfit(hint, value, place)
        if inner is Any:
            return value
        values = {
            key: self.convert(inner, part, f"{place}.{key}", parameters)
            for key, part in value.items()
        }
        return BROKEN if BROKEN in values.values() else values

    def _convert_list(self, hint: Any, value: list[Any], place: str, parameters: Json) -> Any:
        inner = item(hint)
        if inner is None:
            if is_map(hint):
                return self._templates(value, place, parameters)
            return value if Any in members(hint) else self._report_misfit(hint, value, place)
        parts = enumerate(value)
        items = [
            self.convert(inner, part, f"{place}[{index}]", parameters) for index, part in parts
        ]
        if _STREAMS.fullmatch(place):
            for index, part in enumerate(value if place != _TEMPLATES else ()):
                if isinstance(part, dict) and isinstance(part.get("name"), str):
                    self.names[f"{place}[{index}]"] = part["name"]
            usable = (not self._report.refuses(f"{place}[{index}]") for index in range(len(items)))
            items = list(itertools.compress(items, usable))
        return BROKEN if BROKEN in items else tuple(items)

    # --- components -----------------------------------------------------------------------------

    def _find_class(self, hint: Any, content: Json, place: str) -> type[Component] | None:
        """Return the class of a mapping; None if a problem was reported."""
        possible = classes(hint)
        if len(possible) == 1 and not possible[0].has_type():
            return possible[0]
        expected = " or ".join(sorted(NAMES[cls] for cls in possible if cls in NAMES))
        name = content.get("type")
        if name is None:
            self._report.add_problem(place, f"it has no `type`; it must be {expected}")
        elif not isinstance(name, str):
            self._report.add_problem(f"{place}.type", "it must be a text")
        elif name not in TYPES:
            self._report.add_problem(
                place, f"{name!r} is not a known component type; expected {expected}"
            )
        elif not issubclass(TYPES[name], possible):
            self._report.add_problem(place, f"{name} cannot stand here; expected {expected}")
        else:
            return TYPES[name]
        return None

    def _build_component(self, cls: type[Component], content: Json, place: str) -> Any:
        if not cls.is_supported:
            return self._refuse(place, NAMES[cls], content)
        parameters = content[PARAMETERS]
        fields = shape(cls)
        values: dict[str, Any] = {}
        for name, field in fields.items():
            value = content.get(name)
            inner = f"{place}.{name}" if place else name
            if value is not None and field.type is Unsupported:
                values[name] = self._refuse(inner, f"`{name}` of {NAMES[cls]}", value)
            elif value is not None:
                values[name] = self.convert(field.type, value, inner, parameters)
            elif field.required:
                self._report.add_problem(place, f"the required field `{name}` is missing")
                values[name] = BROKEN
        if issubclass(cls, Custom):
            return self._refuse_python(cls, content, place)
        self._check_names(cls, content, place)
        if "stream_template" in fields:
            self.templates_of_streams[place] = content.get("stream_template", {})
        if BROKEN in values.values():
            return BROKEN
        return cls(place=place, parameters=parameters, **values)

    def _refuse(self, place: str, subject: str, content: Any) -> Any:
        self._report.add_reason_for_airbyte(
            place, f"{subject} is not supported by this engine, but by Airbyte's"
        )
        self._check_trust(content, place)
        return BROKEN

    def _refuse_python(self, cls: type[Component], content: Json, place: str) -> Any:
        """Report a component that a class in Python implements."""
        name = str(content.get("class_name"))
        if NAMES[cls] == _DROPPED:
            text = (
                f"{_DROPPED} is not supported, since airbyte-cdk 7 does not have it; use "
                "DatetimeBasedCursor, or run the connector as a `package` or an `image`"
            )
            self._report.add_refusal(place, text)
        elif self._trusts(name):
            self._report.add_reason_for_airbyte(
                place, f"the class {name!r} is Python, for Airbyte's engine"
            )
        else:
            self._refuse_untrusted(place, name)
        options = {key: part for key, part in content.items() if key not in shape(cls)}
        self._check_trust(options, place)
        return BROKEN

    def _check_trust(self, content: Any, place: str) -> None:
        """Report each class in what only Airbyte's engine builds whose module is not trusted."""
        if isinstance(content, list):
            for index, part in enumerate(content):
                self._check_trust(part, f"{place}[{index}]")
        elif isinstance(content, dict):
            name = content.get("class_name")
            if isinstance(name, str) and not self._trusts(name):
                self._refuse_untrusted(place, name)
            for key, part in content.items():
                self._check_trust(part, f"{place}.{key}")

    def _trusts(self, name: str) -> bool:
        return any(f"{name.rpartition('.')[0]}.".startswith(f"{part}.") for part in self._trusted)

    def _refuse_untrusted(self, place: str, name: str) -> None:
        text = f"the class {name!r} is Python; it runs only if its module is trusted"
        self._report.add_refusal(place, text)

    def _check_names(self, cls: type[Component], content: Json, place: str) -> None:
        for name in content:
            if not (name in shape(cls) or name in _NO_FIELDS or name in content[PARAMETERS]):
                self._report.add_warning(
                    place, f"{NAMES[cls]} has no field `{name}`; it is ignored"
                )

    # --- templates ------------------------------------------------------------------------------

    def _template_map(self, inner: Any, value: Json, place: str, parameters: Json) -> Any:
        names = [NAMES[cls] for cls in classes(inner)]
        entries = {
            str(key): self.convert(inner, part, f"{place}.{key}", parameters)
            if isinstance(part, dict) and part.get("type") in names
            else self._templates(part, f"{place}.{key}", parameters)
            for key, part in value.items()
        }
        return BROKEN if BROKEN in entries.values() else TemplateMap(entries, place, parameters)

    def _templates(self, value: Any, place: str, parameters: Json) -> Any:
        """Return a value with its texts as templates, at any depth."""
        if isinstance(value, str):
            return self._template(value, place, parameters)
        if isinstance(value, dict):
            return self._template_map(None, value, place, parameters)
        if isinstance(value, list):
            parts = enumerate(value)
            items = [
                self._templates(part, f"{place}[{index}]", parameters) for index, part in parts
            ]
            return BROKEN if BROKEN in items else tuple(items)
        return value

    def _template(self, text: str, place: str, parameters: Json) -> Any:
        if "{" in text:
            try:
                names = check(text)
            except (TemplateSyntaxError, RecursionError) as error:
                reason = getattr(error, "message", None) or "it is nested too deep"
                self._report.add_problem(
                    place, f"the template {_short(text)} does not compile: {reason}"
                )
                return BROKEN
            for name in sorted(names - VARIABLES):
                warning = f"the template {_short(text)} uses the unknown variable {name!r}"
                self._report.add_warning(place, warning)
        return Template(text, place, parameters)

    # --- problems -------------------------------------------------------------------------------

    def _report_misfit(self, hint: Any, value: Any, place: str) -> Any:
        if isinstance(value, str) and value in _AIRBYTE_ACTIONS:
            return self._refuse(place, value, value)
        self._report.add_problem(place, f"{_short(value)} is not {describe(hint)}")
        return BROKEN


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
