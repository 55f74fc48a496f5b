"""A second look at lines with a value that did not fit, value by value: what can be kept is kept.

Such a line is parsed again into VARIANTs, which take any value. `repaired` makes of one what the
reader would have given had it been lenient (`5.0` is an integer), and null of what is none, in arrays
and objects however deep.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column as Expression
from pyspark.sql import functions as f
from pyspark.sql import types as t

from elt_assets.lake.parse import cast
from elt_assets.lake.schema.logical_types import JSONS, Array, Column, LogicalType, Scalar, Struct

_ANY = "variant"
_ITEMS = "array<variant>"
_FIELDS = "map<string,variant>"
_EXACT = frozenset({Scalar.INTEGER_TEXT, Scalar.BIG_INTEGER, Scalar.BIG_NUMBER})


def lenient(columns: Sequence[Column]) -> list[t.StructField]:
    """How the fields of a record are read again: text as text, which any value is, the others as
    VARIANT."""
    kinds = ((c.source, t.StringType() if is_text(c.kind) else t.VariantType()) for c in columns)
    return [t.StructField(source, kind) for source, kind in kinds]


def texts(columns: Sequence[Column]) -> list[t.StructField]:
    """And how it is seen that there was something which not even a VARIANT takes (half a surrogate)."""
    return [t.StructField(c.source, t.StringType()) for c in columns if not is_text(c.kind)]


def is_text(kind: LogicalType) -> bool:
    """Whether the reader gives any value as text, so that nothing was lost at first."""
    return cast.parsed_as(kind) == t.StringType()


def repaired_column(
    parsed: Expression, again: Expression, text: Expression, kind: LogicalType
) -> Expression:
    """A column of such a line, as `cast.texted` would give it.

    Args:
        parsed: as the reader gave it, `again`: as read by `lenient`, `text`: by `texts`.
    """
    if is_text(kind):
        return f.coalesce(parsed, again)  # the reader's is exact, if it was not thrown out whole
    value = repaired(again, kind)
    return f.coalesce(value, _json(text)) if kind in JSONS else value


def repaired(value: Expression, kind: LogicalType) -> Expression:
    """A VARIANT → as `cast.texted` would give it; null where it is none."""
    if isinstance(kind, Array):
        return f.transform(_items(value), lambda item: repaired(item, kind.items))
    if isinstance(kind, Struct):
        inner = [
            repaired(inside(value, c.source), c.kind).alias(c.source)
            for c in cast.read(kind.fields)
        ]
        return f.when(_is_object(value), f.struct(*inner))
    assert isinstance(kind, Scalar)
    return _scalar(value, kind)


def misfits(value: Expression, kind: LogicalType) -> Expression:
    """Whether `repaired` makes null of something in a VARIANT."""
    if isinstance(kind, Array):
        odd = f.exists(_items(value), lambda item: misfits(item, kind.items))
        return is_there(value) & f.coalesce(odd, f.lit(True))
    if isinstance(kind, Struct):
        inner = [misfits(inside(value, c.source), c.kind) for c in cast.read(kind.fields)]
        return is_there(value) & reduce(lambda a, b: a | b, inner, ~_is_object(value))
    return is_there(value) & repaired(value, kind).isNull()


def is_there(value: Expression) -> Expression:
    """Whether a VARIANT is neither absent nor JSON's null."""
    return value.isNotNull() & ~f.is_variant_null(value)


def inside(value: Expression, name: str) -> Expression:
    """A field of an object. A path cannot name one whose name has quotes of both sorts."""
    for quote in "'\"":
        if quote not in name:
            return f.try_variant_get(value, f"$[{quote}{name}{quote}]", _ANY)
    return f.try_variant_get(value, "$", _FIELDS).getItem(name)


def _items(value: Expression) -> Expression:
    return f.try_variant_get(value, "$", _ITEMS)


def _is_object(value: Expression) -> Expression:
    return f.try_variant_get(value, "$", _FIELDS).isNotNull()


def _scalar(value: Expression, kind: Scalar) -> Expression:
    shape = f.schema_of_variant(value)
    if kind in JSONS:
        return cast.texted(value, kind)
    if kind is Scalar.BOOLEAN:
        return f.when(shape == "BOOLEAN", _as(value, "boolean"))
    number = _as(value, "double")
    # A double's digits beyond 2^53 need not be those that were sent.
    is_safe = (shape != "DOUBLE") | (f.abs(number) <= cast.SAFE_INTEGER)
    if kind is Scalar.INTEGER:
        whole = _as(value, "bigint")  # decimals come without the zeros at their end
        is_whole = shape.rlike(r"^(BIGINT|DECIMAL\(\d+,0\)|DOUBLE)") & (number == f.floor(number))
        return f.when(is_whole & is_safe, whole)
    if kind in (Scalar.NUMBER, Scalar.INTEGER_IN_DOUBLE):
        return f.when(shape.rlike("^(BIGINT|DECIMAL|DOUBLE)"), number)
    if kind is Scalar.BINARY:
        return f.when(shape == "STRING", f.try_to_binary(_as(value, "string"), f.lit("base64")))
    text = _as(value, "string")
    return f.when(is_safe, text) if kind in _EXACT else text


def _as(value: Expression, kind: str) -> Expression:
    return f.try_variant_get(value, "$", kind)


def _json(text: Expression) -> Expression:
    """JSON as it was sent, a string without its quotes → with them."""
    quoted = f.to_json(f.array(text))
    string = f.substring(quoted, f.lit(2), f.length(quoted) - 2)
    is_nested = text.rlike(r"^[\[{].*[\]}]$") & f.get_json_object(text, "$").isNotNull()
    return f.when(is_nested, text).when(text.isNotNull(), string)
