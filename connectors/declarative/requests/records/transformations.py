"""Transformations of records, and those that rename their fields or flatten them.

Each transformation becomes a function of a page: what does not depend on the record is computed once a page.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import singledispatch
from typing import Any

from connectors.declarative import paths
from connectors.declarative.manifest import components
from connectors.declarative.manifest.evaluation.literals import types_of
from connectors.declarative.manifest.template import Template, WrongType
from connectors.declarative.requests.expressions import is_of, text
from connectors.sdk.encoding import encode
from connectors.sdk.items import Record
from elt_assets.errors import ConfigError, SystemFailure

Rename = Callable[[str], str]
Change = Callable[[Record], Record]
"""Returns the changed record, which may be the same object."""

MAX_CHARACTERS = 200
"""Maximum characters of names in an error."""
MAX_NAMES = 10_000
"""Number of names with a new form that is kept. Where data are names, there can be any number of them."""

_LETTERS = str.maketrans(
    {"ß": "ss", "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L"}
    | {"đ": "d", "Đ": "D", "ð": "d", "Ð": "D", "þ": "th", "Þ": "TH", "ı": "i"}
)
"""The Latin letters that are not a letter with an accent."""
_TOKEN = re.compile(r"[A-Z]+[^\W\d_A-Z]*|[^\W\d_A-Z]+|\d+|[\W_]+")


def renaming(rename: Rename, *, is_deep: bool, place: str) -> Change:
    """Return the change that renames the fields of a record.

    Two fields of an object that get one name become one if their values are equal, or one is null. Otherwise
    one would be lost, which the CDK lets happen: the change fails.

    Args:
        rename: returns the new name.
        is_deep: whether the fields of objects in objects are renamed, too. Objects in lists keep theirs.
        place: the place of the transformation in the manifest, for errors.
    """
    names: dict[str, str] = {}

    def renamed(name: str) -> str:
        renamed_key = rename(name)
        if len(names) < MAX_NAMES:
            names[name] = renamed_key
        return renamed_key

    def change(record: Record) -> Record:
        renamed_record: Record = {}
        for name, value in record.items():
            new = names.get(name)
            inner = change(value) if is_deep and type(value) is dict else value
            new = renamed(name) if new is None else new
            if new not in renamed_record or renamed_record[new] is None:
                renamed_record[new] = inner
            elif inner is not None and encode(inner) != encode(renamed_record[new]):
                raise _collision(record, rename, new, place)
        return renamed_record

    return change


def _collision(record: Record, rename: Rename, name: str, place: str) -> SystemFailure:
    before = [old for old in record if rename(old) == name]
    return SystemFailure(
        f"{place}: the fields {' and '.join(map(repr, before))[:MAX_CHARACTERS]} of a record have different "
        f"values, and both become {name[:MAX_CHARACTERS]!r}",
        guidance="remove one of them with RemoveFields, or copy it under another name with AddFields and "
        "then remove it, before this transformation",
    )


def snake_case(name: str) -> str:
    """Return a name in snake case: `OrderID2` becomes `order_id_2`, and `_id` stays.

    Letters with accents lose them. Other letters are kept, where the Airbyte CDK transliterates them.
    """
    plain = unicodedata.normalize("NFKD", name.translate(_LETTERS))
    letters = "".join(letter for letter in plain if not unicodedata.combining(letter))
    words = _TOKEN.findall(letters)
    tokens = [token if token[0].isalnum() else "" for token in words]
    if len(tokens) >= 3:
        tokens = [tokens[0], *filter(None, tokens[1:-1]), tokens[-1]]
    if tokens and tokens[0].isdigit():
        tokens.insert(0, "")
    return "_".join(tokens).lower()


def flattening(*, flatten_lists: bool) -> Change:
    """Return the change that replaces objects by their fields, and lists by their elements.

    A field keeps its own name where that is free; from the first list on, and where it is not free, the name
    of its parent stands before it. Empty objects, and empty lists that are flattened, disappear. The order of
    the work decides which names are free, so it is as in the Airbyte CDK: the last field comes first. But a
    name that the CDK would give twice, so that one value is lost, is that of the field of the record itself,
    or of the first; the other has the name of its parent before it.
    """

    def is_flattened(value: Any) -> bool:
        return isinstance(value, dict) or (flatten_lists and isinstance(value, list))

    def change(record: Record) -> Record:
        flat: Record = {}
        own = {name for name, value in record.items() if not is_flattened(value)}
        waiting: list[tuple[Any, str, str]] = [(record, "_", "_")]
        has_met_list = False
        while waiting:
            value, name, full_name = waiting.pop()
            if isinstance(value, dict):
                for key, inner in value.items():
                    is_taken = has_met_list or key in flat or (value is not record and key in own)
                    full = f"{name}.{key}"
                    waiting.append((inner, full if is_taken else key, full))
            elif flatten_lists and isinstance(value, list):
                has_met_list = has_met_list or bool(value)
                for number, inner in enumerate(value):
                    numbered_name = f"{name}.{number}"
                    waiting.append((inner, numbered_name, numbered_name))
            else:
                while name in flat:
                    name, full_name = full_name, f"_.{full_name}"
                flat[name] = value
        return flat

    return change


def with_affixes(record: Mapping[str, Any], prefix: str, suffix: str) -> Record:
    """Return an object with a text before and one after each name."""
    return {f"{prefix}{name}{suffix}": value for name, value in record.items()}


Variables = Mapping[str, Any]
Transform = Callable[[list[Record], Variables], None]
"""Changes the records of a page in place, or replaces them in the list. The variables are the config and
those of the slice."""

_RECORD = frozenset({"record"})
MAX_CONDITIONS = 10_000
"""Number of values for which the result of a condition is kept, for a page."""


@singledispatch
def transformation(component: Any) -> Transform:
    """Return the function that a component describes."""
    raise TypeError(component)


@transformation.register
def _(component: components.AddFields) -> Transform:
    condition = component.condition if component.condition.text else None
    steps = [_added(field, condition) for field in component.fields]

    def transform(records: list[Record], variables: Variables) -> None:
        for step in steps:
            step(records, variables)

    return transform


def _added(field: components.AddedFieldDefinition, condition: Template | None) -> Transform:
    """Return the function that adds one field."""
    template, path = field.value, field.path
    types = types_of(field.value_type)
    put = _setter(path, field.place)
    is_same = not is_of(template, _RECORD)

    def transform(records: list[Record], variables: Variables) -> None:
        scope = dict(variables)
        if is_same and records:
            value = _value(template, scope, types)
        for record in records:
            scope["record"] = record
            if not is_same:
                value = _value(template, scope, types)
            if condition is None or condition.is_true(
                {**scope, "value": value, "property": value, "path": list(path)}
            ):
                put(
                    record, deepcopy(value) if is_same and isinstance(value, dict | list) else value
                )

    return transform


def _value(template: Template, variables: Variables, types: tuple[type, ...]) -> Any:
    """Return the value of a field; null if the template meets a value of the wrong type, such as a null in
    one of the records. The CDK then writes the text of the template into the record."""
    try:
        return template.evaluate(variables, types) if types else template.value_of(variables)
    except WrongType:
        return None


def _setter(path: Sequence[str], place: str) -> Callable[[Record, Any], None]:
    """Return the function that sets the value at a path of a record."""
    if not path:
        raise ConfigError(f"{place}.path is empty", guidance="write the name of the field")
    if len(path) == 1:
        name = path[0]
        return lambda record, value: record.__setitem__(name, value)

    def put(record: Record, value: Any) -> None:
        try:
            paths.put(record, path, value)
        except paths.BlockedPath:
            raise SystemFailure(
                f"the field {'.'.join(path)!r} cannot be added to a record: a field on the way is neither an "
                "object nor a list",
                guidance=f"correct {place}.path in the manifest",
            ) from None

    return put


@transformation.register
def _(component: components.RemoveFields) -> Transform:
    pointers = component.field_pointers
    if not component.condition.text:
        return _each(lambda record: _removed(record, pointers))

    def transform(records: list[Record], variables: Variables) -> None:
        condition = _remembered(component.condition, variables)
        for record in records:
            for pointer in pointers:
                paths.delete(record, pointer, condition)

    return transform


def _removed(record: Record, pointers: Sequence[Sequence[str]]) -> Record:
    for pointer in pointers:
        paths.delete(record, pointer)
    return record


def _remembered(condition: Template, variables: Variables) -> paths.Condition:
    """Return a condition on a value, whose results are kept."""
    results: dict[tuple[type, Any], bool] = {}

    def is_true(value: Any) -> bool:
        key = (type(value), value)
        result = results.get(key)
        if result is None:
            result = condition.is_true({**variables, "property": value})
            if len(results) < MAX_CONDITIONS:
                results[key] = result
        return result

    return is_true


@transformation.register
def _(component: components.KeysToLower) -> Transform:
    return _each(renaming(str.lower, is_deep=False, place=component.place))


@transformation.register
def _(component: components.KeysToSnakeCase) -> Transform:
    return _each(renaming(snake_case, is_deep=True, place=component.place))


@transformation.register
def _(component: components.FlattenFields) -> Transform:
    return _each(flattening(flatten_lists=component.flatten_lists))


@transformation.register
def _(component: components.KeysReplace) -> Transform:
    old, new = component.old, component.new

    def replacing(variables: Variables) -> Change:
        before, after = old.text_of(variables), new.text_of(variables)
        place = component.place
        return renaming(lambda name: name.replace(before, after), is_deep=True, place=place)

    def transform(records: list[Record], variables: Variables) -> None:
        if is_of((old, new), _RECORD):
            records[:] = [replacing({**variables, "record": record})(record) for record in records]
        else:
            records[:] = map(replacing(variables), records)

    return transform


@transformation.register
def _(component: components.DpathFlattenFields) -> Transform:
    affixes = component.key_transformation

    def flattened(record: Record, path: Sequence[str], prefix: str, suffix: str) -> Record:
        nested = _object_at(record, path)
        if nested is None:
            return record
        fields = with_affixes(nested, prefix, suffix) if affixes else nested
        if component.replace_record and fields:
            return dict(fields)
        if record.keys().isdisjoint(fields):
            if component.delete_origin_value:
                paths.delete(record, path)
            record.update(fields)
        return record

    def transform(records: list[Record], variables: Variables) -> None:
        path = tuple(part.text_of(variables) for part in component.field_path)
        prefix = text(affixes.prefix, variables) if affixes else ""
        suffix = text(affixes.suffix, variables) if affixes else ""
        records[:] = [flattened(record, path, prefix, suffix) for record in records]

    return transform


def _object_at(record: Record, path: Sequence[str]) -> dict[str, Any] | None:
    if paths.ANY in path:
        value: Any = next(iter(paths.values_at(record, path)), None)
    else:
        value = paths.value_at(record, path)
    return value if isinstance(value, dict) else None


def _each(change: Change) -> Transform:
    def transform(records: list[Record], _variables: Variables) -> None:
        records[:] = map(change, records)

    return transform
