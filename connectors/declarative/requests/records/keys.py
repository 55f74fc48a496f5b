"""Names of fields: transformations that rename the fields of records or flatten them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

from connectors.sdk.encoding import encode
from elt_assets.errors import SystemFailure

Record = dict[str, Any]
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
