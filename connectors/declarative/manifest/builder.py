"""Builds components from the plain values of a manifest whose references are resolved."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from jinja2.exceptions import TemplateSyntaxError

from connectors.declarative.manifest.components import Component, Custom, Json
from connectors.declarative.manifest.evaluation.programs import VARIABLES, check
from connectors.declarative.manifest.propagation import (
    PARAMETERS,
    by_position,
    merged,
    without,
)
from connectors.declarative.manifest.references import BROKEN
from connectors.declarative.manifest.report import Report
from connectors.declarative.manifest.shapes import ANY, NAMES, TYPES, Field, Kind, shape
from connectors.declarative.manifest.template import Template, TemplateMap

C = TypeVar("C", bound=Component)

_NO_FIELDS = frozenset({"type", "$schema", PARAMETERS})
_CDK = "airbyte_cdk."
_SHOWN = 80


class Builder:
    """Builds components, and reports what is wrong with what they are built from.

    Args:
        report: where problems and warnings are reported.
        trusted: the modules whose classes a manifest may name; those within them are included.

    Attributes:
        templates_of_streams: for the place of each component with a `stream_template`, what the template is
            built from, and the parameters that reach it.
    """

    def __init__(self, report: Report, trusted: Sequence[str] = ()):
        self.templates_of_streams: dict[str, tuple[Json, Json]] = {}
        self._report = report
        self._trusted = tuple(trusted)

    def build(self, of: type[C], written: Json, place: str, inherited: Json) -> C | None:
        """Return a component.

        Args:
            of: its class.
            written: what the manifest contains for it.
            place: its place in the manifest.
            inherited: the parameters that reach it.

        Returns:
            The component; None if a problem was reported.
        """
        parameters = merged(inherited, written)
        fields = shape(of)
        values: dict[str, Any] = {"place": place, "parameters": parameters}
        complete = True
        filling = parameters if of.has_type else {}
        for field in fields.values():
            name = field.name
            value = written.get(name)
            if not value and name in filling and self._fits(field, filling[name], place):
                value = filling[name]
            complete &= self._field(field, value, place, parameters, values)
        if issubclass(of, Custom):
            complete = complete and self._custom(of, written, place, parameters, values)
        else:
            self._check_names(of, written, place, parameters)
        if "stream_template" in fields:
            self.templates_of_streams[place] = (written.get("stream_template", {}), parameters)
        return of(**values) if complete else None

    def select(self, kind: Kind, written: Json, place: str) -> type[Component] | None:
        """Return the class of a mapping: what its `type` says, or what is known from where it stands.

        Returns:
            The class; None if a problem was reported.
        """
        name = written.get("type")
        if isinstance(name, str):
            return self._named(name, kind, written, place)
        if name is not None:
            self._problem(f"{place}.type", "it must be a text")
            return None
        old_name = str(written.get("class_name", ""))
        if old_name.startswith(_CDK):
            return self._named(old_name, kind, written, place)
        found = by_position(kind, is_custom=bool(old_name))
        if found is None:
            self._problem(place, f"it has no `type`; it must be {kind.described()}")
        return found

    def _named(self, name: str, kind: Kind, written: Json, place: str) -> type[Component] | None:
        last = name.rpartition(".")[2]
        found = TYPES.get(last)
        if found is not None and (found in kind.components or not kind.components):
            return found
        if len(kind.components) == 1 and not kind.components[0].has_type:
            return kind.components[0]
        if found is None:
            self._problem(place, f"{last!r} is not a known component type; {_expected(kind)}")
        else:
            self._problem(place, f"{last} cannot stand here; {_expected(kind)}")
        return None

    def _field(
        self, field: Field, value: Any, place: str, parameters: Json, values: dict[str, Any]
    ) -> bool:
        """Add the value of a field; return False if a problem was reported."""
        if value is None:
            if field.required:
                self._problem(place, f"the required field `{field.name}` is missing")
            return not field.required
        where = f"{place}.{field.name}" if place else field.name
        if field.name in parameters and not isinstance(value, str) and field.kind.holds_components:
            # It reaches the templates of the field itself, but no component in it.
            parameters = without(parameters, field.name)
        found = self.convert(field.kind, value, where, parameters)
        values[field.name] = found
        return found is not BROKEN

    def _fits(self, field: Field, parameter: Any, place: str) -> bool:
        """Return False for a parameter that has a field's name by chance: its value is of another type."""
        fits = parameter is None or field.kind.accepts(parameter)
        if not fits:
            text = (
                f"the parameter `{field.name}` is not used here, because its value has another type"
            )
            self._report.warning(place, text)
        return fits

    def _custom(
        self,
        of: type[Component],
        written: Json,
        place: str,
        parameters: Json,
        values: dict[str, Any],
    ) -> bool:
        """Add the options of a component that Python implements; return False if it is not trusted."""
        name = values["class_name"]
        module = name.rpartition(".")[0]
        if not any(module == each or module.startswith(f"{each}.") for each in self._trusted):
            text = f"the class {name!r} is Python; it runs only if its module is trusted"
            self._problem(place, text)
            return False
        known = shape(of)
        options = {
            key: self._option(each, f"{place}.{key}", without(parameters, key))
            for key, each in {**parameters, **written}.items()
            if key not in _NO_FIELDS and key not in known
        }
        values["options"] = options
        return BROKEN not in options.values()

    def _option(self, value: Any, place: str, parameters: Json) -> Any:
        if isinstance(value, list):
            items = enumerate(value)
            return tuple(self._option(each, f"{place}[{at}]", parameters) for at, each in items)
        if not isinstance(value, dict):
            return value
        kind = value.get("type")
        if kind is None:
            return {
                key: self._option(each, f"{place}.{key}", parameters) for key, each in value.items()
            }
        if isinstance(kind, str) and kind in TYPES:
            return self._component(ANY, value, place, parameters)
        return value

    def _check_names(
        self, of: type[Component], written: Json, place: str, parameters: Json
    ) -> None:
        known = shape(of)
        for name in written:
            if name not in known and name not in _NO_FIELDS and name not in parameters:
                text = f"{NAMES[of]} has no field `{name}`; it is ignored"
                self._report.warning(place, text)

    # --- values -------------------------------------------------------------------------------

    def convert(self, kind: Kind, value: Any, place: str, parameters: Json) -> Any:
        """Return the value of a field; `BROKEN` if a problem was reported."""
        if value is BROKEN:
            return BROKEN
        if isinstance(value, str):
            return self._text(kind, value, place, parameters)
        if isinstance(value, dict):
            found = self._mapping(kind, value, place, parameters)
        elif isinstance(value, list):
            found = self._list(kind, value, place, parameters)
        else:
            found = self._number(kind, value, place, parameters)
        return self._wrong(kind, value, place) if found is _MISFIT else found

    def _text(self, kind: Kind, value: str, place: str, parameters: Json) -> Any:
        if kind.choices is not None and value in kind.choices:
            return value
        if kind.template:
            return self._template(value, place, parameters)
        if str in kind.plain or kind.anything:
            return value
        if bool in kind.plain and value.lower() in ("true", "false"):
            self._report.warning(place, f"{value!r} is a text; true or false is meant")
            return value.lower() == "true"
        for number in (int, float):
            if number in kind.plain:
                try:
                    found = number(value)
                except ValueError:
                    continue
                self._report.warning(place, f"{value!r} is a text; a number is meant")
                return found
        return self._wrong(kind, value, place)

    def _number(self, kind: Kind, value: Any, place: str, parameters: Json) -> Any:
        if type(value) in kind.plain or kind.anything:
            return value
        if isinstance(value, int) and not isinstance(value, bool) and float in kind.plain:
            return value
        if isinstance(value, float) and int in kind.plain and value.is_integer():
            return int(value)
        if kind.template and value is not None:
            return self._template(str(value), place, parameters)
        if str in kind.plain and isinstance(value, (int, float)):
            return str(value)
        return _MISFIT

    def _mapping(self, kind: Kind, value: Json, place: str, parameters: Json) -> Any:
        if kind.components:
            return self._component(kind, value, place, parameters)
        if kind.template_map:
            return self._template_map(kind, value, place, parameters)
        if kind.entry is not None:
            if kind.entry.anything:
                return value
            found = {
                key: self.convert(kind.entry, each, f"{place}.{key}", parameters)
                for key, each in value.items()
            }
            return BROKEN if BROKEN in found.values() else found
        return value if kind.anything else _MISFIT

    def _list(self, kind: Kind, value: list[Any], place: str, parameters: Json) -> Any:
        if kind.item is not None:
            found = tuple(
                self.convert(kind.item, each, f"{place}[{index}]", parameters)
                for index, each in enumerate(value)
            )
            return BROKEN if BROKEN in found else found
        if kind.template_map:
            return self._templates(value, place, parameters)
        return value if kind.anything else _MISFIT

    def _component(self, kind: Kind, value: Json, place: str, parameters: Json) -> Any:
        of = self.select(kind, value, place)
        found = None if of is None else self.build(of, value, place, parameters)
        return BROKEN if found is None else found

    def _template_map(self, kind: Kind, value: Json, place: str, parameters: Json) -> Any:
        names = [NAMES[each] for each in kind.within]
        found = {
            str(key): self._component(
                Kind(components=kind.within), each, f"{place}.{key}", parameters
            )
            if names and isinstance(each, dict) and each.get("type") in names
            else self._templates(each, f"{place}.{key}", parameters)
            for key, each in value.items()
        }
        return BROKEN if BROKEN in found.values() else TemplateMap(found, place, parameters)

    def _templates(self, value: Any, place: str, parameters: Json) -> Any:
        """Return a value with its texts as templates, at any depth."""
        if isinstance(value, str):
            return self._template(value, place, parameters)
        if isinstance(value, dict):
            return self._template_map(Kind(), value, place, parameters)
        if isinstance(value, list):
            items = enumerate(value)
            return tuple(self._templates(each, f"{place}[{at}]", parameters) for at, each in items)
        return value

    def _template(self, text: str, place: str, parameters: Json) -> Any:
        if "{" in text:
            try:
                names = check(text)
            except (TemplateSyntaxError, RecursionError) as error:
                reason = getattr(error, "message", None) or "it is nested too deep"
                shown = _short(text)
                self._problem(place, f"the template {shown} does not compile: {reason}")
                return BROKEN
            for name in sorted(names - VARIABLES):
                what = f"the template {_short(text)} uses the unknown variable {name!r}"
                self._report.warning(place, what)
        return Template(text, place, parameters)

    def _wrong(self, kind: Kind, value: Any, place: str) -> Any:
        self._problem(place, f"{_short(value)} is not {kind.described()}")
        return BROKEN

    def _problem(self, place: str, what: str) -> None:
        self._report.problem(place, what)


_MISFIT = object()
"""A value that a field cannot have."""


def _expected(kind: Kind) -> str:
    names: Iterable[str] = sorted(NAMES[each] for each in kind.components)
    return f"expected {' or '.join(names)}" if kind.components else ""


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
