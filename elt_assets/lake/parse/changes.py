"""What was changed in a record on its way to its row, to be told in `_airbyte_meta.changes`.

spec: AirbyteRecordMessage.meta.changes (0.6).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column as Expression
from pyspark.sql import functions as f

from elt_assets.lake.parse import cast, salvage
from elt_assets.lake.schema.logical_types import JSONS, Array, Column, LogicalType, Scalar, Struct

MAX_VALUE_BYTES = 16 * 1024 * 1024
"""Of a text, JSON or binary column: what is longer is null, for engines begin to fail beyond it."""

_SIZED = frozenset({Scalar.TEXT, Scalar.BINARY, *JSONS})
_MISFIT = ("NULLED", "DESTINATION_TYPECAST_ERROR")
_OVERSIZE = ("NULLED", "DESTINATION_FIELD_SIZE_LIMITATION")
_ROUNDED = ("TRUNCATED", "DESTINATION_FIELD_SIZE_LIMITATION")


@dataclass(frozen=True)
class Change:
    """`condition`: whether it happened; the others as they are recorded."""

    condition: Expression
    field: str
    change: str
    reason: str

    def recorded(self) -> Expression:
        """The entry, its parts without their names; null where nothing happened."""
        parts = (self.field, self.change, self.reason)
        return f.when(self.condition, f.struct(*map(f.lit, parts)))


@dataclass(frozen=True)
class Place:
    """A value somewhere in a record.

    `value`: as `cast.texted`, or `repair`, gives it; `result`: as it lands; `again`: as a corrupt line
    was read again, `is_there`: whether that held anything here.
    """

    path: Sequence[str]
    kind: LogicalType
    value: Expression
    result: Expression
    again: Expression
    is_there: Expression

    def inside(self, column: Column) -> Place:
        """A field of the object here."""
        again = salvage.inside(self.again, column.source)
        return Place(
            [*self.path, column.source],
            column.kind,
            self.value.getField(column.source),
            self.result.getField(column.name if cast.is_changed(self.kind) else column.source),
            again,
            salvage.is_there(again),
        )

    def change(self, condition: Expression, what: tuple[str, str]) -> Change:
        return Change(condition, ".".join(self.path), *what)


def within_bounds(result: Expression, value: Expression, kind: LogicalType) -> Expression:
    """A column's value, null where it is too long."""
    return f.when(~_is_oversize(value), result) if kind in _SIZED else result


def suspicions(value: Expression, result: Expression, kind: LogicalType) -> Iterator[Expression]:
    """When something may have changed in a column of a line that the reader found clean; quickly told."""
    if cast.is_checked(kind):
        yield cast.loses(value, result, kind)
    if cast.is_rounded(kind):
        yield cast.rounds(value, result, kind)
    if kind in _SIZED:
        yield f.coalesce(_is_oversize(value), f.lit(False))


def changes(place: Place) -> Iterator[Change]:
    """All that may have changed in a column, each at its path; in an array, at the array's."""
    if place.kind not in _SIZED:
        yield from _changes(place)
        return
    oversize = f.coalesce(_is_oversize(place.value), f.lit(False))
    yield place.change(oversize, _OVERSIZE)
    for other in _changes(place):
        yield replace(other, condition=other.condition & ~oversize)


def _changes(place: Place) -> Iterator[Change]:
    kind, is_lost = place.kind, place.is_there & place.value.isNull()
    if kind is Scalar.TEXT:  # takes any value
        return
    if isinstance(kind, Struct):
        yield place.change(is_lost, _MISFIT)
        for column in cast.read(kind.fields):
            yield from _changes(place.inside(column))
        return
    if isinstance(kind, Array):
        is_lost |= salvage.misfits(place.again, kind)
    if cast.is_checked(kind):
        is_lost |= cast.loses(place.value, place.result, kind)
    yield place.change(is_lost, _MISFIT)
    if cast.is_rounded(kind):
        yield place.change(cast.rounds(place.value, place.result, kind), _ROUNDED)


def _is_oversize(value: Expression) -> Expression:
    return f.octet_length(value) > MAX_VALUE_BYTES
