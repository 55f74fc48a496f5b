"""Undeclared fields: fields of records that the stream's schema does not declare.

They are counted by name, and kept if the stream has `on_undeclared: keep`. No column holds such a field, and
the JSON reader skips it silently. A line is first decoded with the declared names only, and without its
values. Only a line with another name is decoded object by object.

Spec: Airbyte Protocol: a record may hold fields that its stream's schema does not name; a destination may
ignore them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from elt_assets.lake.schema.logical_types import Array, Column, LogicalType, Struct, core
from elt_assets.lake.spark.parsing.lines import is_supported
from elt_assets.lake.spark.parsing.undeclared import (
    DECODING_ERRORS,
    MAX_NAMES,
    OTHERS,
    Declared,
    Extra,
    add,
    renamed,
    undeclared,
)
from elt_assets.sync import segments
from elt_assets.sync.selection.fields import UNDECLARED

_BUFFER = 1 << 20
STAGED = (
    segments.EXTRACTED_AT,
    segments.SEQUENCE,
    segments.META,
    segments.NOT_AN_OBJECT,
    segments.PLACE,
)
"""The properties that a staged line has besides the record's own fields."""
_encode = msgspec.json.Encoder().encode


class UndeclaredFields:
    """Finds the undeclared fields of one stream's staged records.

    Args:
        columns: all columns that the stream's schema declares.
    """

    def __init__(self, columns: Sequence[Column]):
        own = declared_names(columns)
        self._declared = Declared(own.names.union(STAGED), own.objects)
        self._decode = msgspec.json.Decoder(_struct(columns, STAGED)).decode

    def rewrite(self, segment: Path, target: Path, *, keeps: bool) -> Counter[str]:
        """Write a segment's lines to `target`, with the declared names of renamed fields.

        Args:
            keeps: each line gets its undeclared fields in the object `UNDECLARED`.

        Returns:
            the number of records that have each undeclared field, by its dotted name.
        """
        counts: Counter[str] = Counter()
        with (
            segment.open("rb", buffering=_BUFFER) as lines,
            target.open("wb", buffering=_BUFFER) as out,
        ):
            for staged in lines:
                line, extra = self._split(staged)
                if extra is not None:
                    add(counts, extra)
                out.write(_with_extra(line, extra) if keeps and extra is not None else line)
        return counts

    def _split(self, line: bytes) -> tuple[bytes, Extra | None]:
        """Return a staged line with declared names, and its undeclared fields; None if it has none, or cannot
        be decoded."""
        try:
            if self._is_declared(line):
                return line, None
            value = Raw(line)
            extra = undeclared(value, self._declared)
            if extra is None or (other := renamed(value, extra, self._declared)) is value:
                return line, extra
            return bytes(other) + b"\n", undeclared(other, self._declared)
        except DECODING_ERRORS:  # the parser rejects such a line
            return line, None

    def _is_declared(self, line: bytes) -> bool:
        """Return whether every name in a staged line is declared, and every value has the declared shape."""
        try:
            self._decode(line)
        except msgspec.ValidationError:
            return False
        return True


def _with_extra(line: bytes, extra: Extra) -> bytes:
    return b'%b,"%b":%b}\n' % (line[:-2], UNDECLARED.encode(), _encode(extra))


def described(counts: Mapping[str, int]) -> str:
    """Return the fields and how many records have each, the most frequent first, as text for the log."""
    most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown = [f"{name} ({records:,} records)" for name, records in most[:10]]
    return ", ".join(shown) + (f" and {len(most) - 10} more" if len(most) > 10 else "")


def bounded(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the counts of the `MAX_NAMES` most frequent fields, and one count for all others. If a source
    uses data as names, the counts must not fill the memory."""
    if len(counts) <= MAX_NAMES:
        return dict(counts)
    most = Counter(counts).most_common()
    most = [item for item in most if item[0] != OTHERS]
    rest = sum(records for _, records in most[MAX_NAMES:]) + counts.get(OTHERS, 0)
    return {**dict(most[:MAX_NAMES]), OTHERS: rest}


def declared_names(columns: Sequence[Column]) -> Declared:
    inner = {column.source: core(column.kind) for column in columns}
    objects = {
        name: declared_names(kind.fields)
        for name, kind in inner.items()
        if isinstance(kind, Struct)
    }
    return Declared(frozenset(inner), objects)


def keeps_all_names(before: Declared, after: Declared) -> bool:
    """Return whether a schema declares all names that an earlier one declared."""
    return before.names <= after.names and all(
        keeps_all_names(inner, after.objects[name])
        for name, inner in before.objects.items()
        if name in after.objects
    )


def _struct(columns: Sequence[Column], staged: Sequence[str] = ()) -> type[msgspec.Struct]:
    """Return a type that decodes an object only if all its names are declared. Its values stay undecoded,
    except for objects whose fields are declared."""
    types: dict[str, Any] = {column.source: _type(column.kind) for column in columns}
    types |= dict.fromkeys(staged, Raw)
    known = list(filter(is_supported, types))
    own = {name: f"f{number}" for number, name in enumerate(known)}
    return msgspec.defstruct(
        "Record",
        [(own[name], types[name], None) for name in known],
        rename={py: name for name, py in own.items()},
        forbid_unknown_fields=True,
        gc=False,
    )


def _type(kind: LogicalType) -> Any:
    if isinstance(kind, Array):
        inner = _type(kind.items)
        return Raw if inner is Raw else list[inner] | None  # type: ignore[valid-type]
    return _struct(kind.fields) | None if isinstance(kind, Struct) else Raw
