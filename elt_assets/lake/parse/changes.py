"""Changes to a record's values on the way to its row, as `_airbyte_meta.changes` records them.

Spec: AirbyteRecordMessage.meta.changes (0.6).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column as Expression
from pyspark.sql import functions as f

from elt_assets.lake.parse import cast, salvage
from elt_assets.lake.schema import metadata_columns
from elt_assets.lake.schema.logical_types import JSONS, Array, Column, LogicalType, Scalar, Struct

MAX_VALUE_BYTES = 16 * 1024 * 1024
"""Size limit of a text, JSON or binary value. A longer value becomes null: engines begin to fail there."""

_SIZED = frozenset({Scalar.TEXT, Scalar.BINARY, *JSONS})
_MISFIT = (metadata_columns.NULLED, "DESTINATION_TYPECAST_ERROR")
_OVERSIZE = (metadata_columns.NULLED, "DESTINATION_FIELD_SIZE_LIMITATION")
_ROUNDED = ("TRUNCATED", "DESTINATION_FIELD_SIZE_LIMITATION")


@dataclass(frozen=True)
class Change:
    """A possible change of a value. `condition`: whether it happened; the other attributes: its entry."""

    condition: Expression
    field: str
    change: str
    reason: str

    def recorded(self) -> Expression:
        """Return the entry as a struct without field names; null if the change did not happen."""
        parts = (self.field, self.change, self.reason)
        return f.when(self.condition, f.struct(*map(f.lit, parts)))


@dataclass(frozen=True)
class ParsedField:
    """A field of a record, at any depth.

    Attributes:
        path: the source's names of the field and of the objects around it, outermost first.
        value: in the form of `cast.json_as_text`, or repaired by `salvage`.
        result: as the table stores it.
        variant: the field in the second parse of a corrupt line.
        is_present: whether that parse found a value here.
    """

    path: Sequence[str]
    kind: LogicalType
    value: Expression
    result: Expression
    variant: Expression
    is_present: Expression

    def nested(self, column: Column) -> ParsedField:
        """Return a field of the object that this field holds."""
        variant = salvage.nested(self.variant, column.source)
        return ParsedField(
            [*self.path, column.source],
            column.kind,
            self.value.getField(column.source),
            self.result.getField(column.name if cast.is_converted(self.kind) else column.source),
            variant,
            salvage.is_present(variant),
        )

    def change(self, condition: Expression, what: tuple[str, str]) -> Change:
        return Change(condition, ".".join(self.path), *what)


def within_size_limit(result: Expression, value: Expression, kind: LogicalType) -> Expression:
    """Return the value of a column, null if it is too long."""
    return f.when(~_is_too_long(value), result) if kind in _SIZED else result


def change_tests(value: Expression, result: Expression, kind: LogicalType) -> Iterator[Expression]:
    """Yield cheap conditions under which a value may have changed, for a line that the reader could parse."""
    if cast.can_lose(kind):
        yield cast.loses(value, result, kind)
    if cast.can_round(kind):
        yield cast.rounds(value, result, kind)
    if kind in _SIZED:
        yield f.coalesce(_is_too_long(value), f.lit(False))


def is_nulled(fields: Sequence[str]) -> Expression:
    """Return whether a row has a null in one of these fields because its value did not fit the column.

    Args:
        fields: paths, with dots between the source's names.
    """
    found = f.exists(
        f.col(metadata_columns.META).getField("changes"),
        lambda change: (
            change.getField("field").isin(list(fields))
            & (change.getField("change") == metadata_columns.NULLED)
            & change.getField("reason").startswith(metadata_columns.OWN_REASON)
        ),
    )
    return f.coalesce(found, f.lit(False))


def changes(field: ParsedField) -> Iterator[Change]:
    """Yield all possible changes of a column, each at its path; one in an array is at the array's path."""
    if field.kind not in _SIZED:
        yield from _changes(field)
        return
    is_too_long = f.coalesce(_is_too_long(field.value), f.lit(False))
    yield field.change(is_too_long, _OVERSIZE)
    for other in _changes(field):
        yield replace(other, condition=other.condition & ~is_too_long)


def _changes(field: ParsedField) -> Iterator[Change]:
    kind, is_lost = field.kind, field.is_present & field.value.isNull()
    if kind is Scalar.TEXT:  # accepts any value
        return
    if isinstance(kind, Struct):
        yield field.change(is_lost, _MISFIT)
        for column in cast.read_columns(kind.fields):
            yield from _changes(field.nested(column))
        return
    if isinstance(kind, Array):
        is_lost |= salvage.has_misfit(field.variant, kind)
    if cast.can_lose(kind):
        is_lost |= cast.loses(field.value, field.result, kind)
    yield field.change(is_lost, _MISFIT)
    if cast.can_round(kind):
        yield field.change(cast.rounds(field.value, field.result, kind), _ROUNDED)


def _is_too_long(value: Expression) -> Expression:
    return f.octet_length(value) > MAX_VALUE_BYTES
