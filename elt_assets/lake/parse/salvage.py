"""Second, lenient parse of lines with a value that does not fit: it keeps every value that can be kept.

Such a line is parsed again into VARIANTs, which accept any value. `repaired` converts a VARIANT to what a
lenient reader would return (`5.0` is an integer). A value that does not fit becomes null, at any depth of
arrays and objects.
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


def variant_fields(columns: Sequence[Column]) -> list[t.StructField]:
    """Return the fields of a record for the second parse: text as string, everything else as VARIANT."""
    kinds = ((c.source, t.StringType() if is_string(c.kind) else t.VariantType()) for c in columns)
    return [t.StructField(source, kind) for source, kind in kinds]


def text_fields(columns: Sequence[Column]) -> list[t.StructField]:
    """Return the VARIANT fields of the second parse as strings. They show that a field had a value even if no
    VARIANT accepts it (half of a surrogate pair)."""
    return [t.StructField(c.source, t.StringType()) for c in columns if not is_string(c.kind)]


def is_string(kind: LogicalType) -> bool:
    """Return whether the reader parses this type as text: then the first parse loses no value."""
    return cast.reader_type(kind) == t.StringType()


def repaired_column(
    parsed: Expression, variant: Expression, text: Expression, kind: LogicalType
) -> Expression:
    """Return a column of such a line in the form of `cast.json_as_text`.

    Args:
        parsed: the column in the first parse.
        variant: the column in the second parse, by `variant_fields`.
        text: the column by `text_fields`.
    """
    if is_string(kind):
        return f.coalesce(parsed, variant)  # the first is exact, unless the whole line became null
    value = repaired(variant, kind)
    return f.coalesce(value, _quoted(text)) if kind in JSONS else value


def repaired(value: Expression, kind: LogicalType) -> Expression:
    """Return a VARIANT in the form of `cast.json_as_text`; null if it does not fit the type."""
    if isinstance(kind, Array):
        return f.transform(_items(value), lambda item: repaired(item, kind.items))
    if isinstance(kind, Struct):
        inner = [
            repaired(nested(value, c.source), c.kind).alias(c.source)
            for c in cast.read_columns(kind.fields)
        ]
        return f.when(_is_object(value), f.struct(*inner))
    assert isinstance(kind, Scalar)
    return _scalar(value, kind)


def has_misfit(value: Expression, kind: LogicalType) -> Expression:
    """Return whether `repaired` makes something in a VARIANT null."""
    if isinstance(kind, Array):
        found = f.exists(_items(value), lambda item: has_misfit(item, kind.items))
        return is_present(value) & f.coalesce(found, f.lit(True))
    if isinstance(kind, Struct):
        fields = cast.read_columns(kind.fields)
        inner = [has_misfit(nested(value, c.source), c.kind) for c in fields]
        return is_present(value) & reduce(lambda a, b: a | b, inner, ~_is_object(value))
    return is_present(value) & repaired(value, kind).isNull()


def is_present(value: Expression) -> Expression:
    """Return whether a VARIANT is neither absent nor JSON's null."""
    return value.isNotNull() & ~f.is_variant_null(value)


def nested(value: Expression, name: str) -> Expression:
    """Return a field of an object. A path cannot contain a name with both kinds of quotes: a map can."""
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
        return cast.json_as_text(value, kind)
    if kind is Scalar.BOOLEAN:
        return f.when(shape == "BOOLEAN", _as(value, "boolean"))
    number = _as(value, "double")
    # The digits of a double beyond 2^53 may differ from those that the source sent.
    is_safe = (shape != "DOUBLE") | (f.abs(number) <= cast.SAFE_INTEGER)
    if kind is Scalar.INTEGER:
        integer = _as(value, "bigint")  # a VARIANT's decimal has no trailing zeros
        is_whole = shape.rlike(r"^(BIGINT|DECIMAL\(\d+,0\)|DOUBLE)") & (number == f.floor(number))
        return f.when(is_whole & is_safe, integer)
    if kind in (Scalar.NUMBER, Scalar.INTEGER_IN_DOUBLE):
        return f.when(shape.rlike("^(BIGINT|DECIMAL|DOUBLE)"), number)
    if kind is Scalar.BINARY:
        return f.when(shape == "STRING", f.try_to_binary(_as(value, "string"), f.lit("base64")))
    text = _as(value, "string")
    return f.when(is_safe, text) if kind in _EXACT else text


def _as(value: Expression, kind: str) -> Expression:
    return f.try_variant_get(value, "$", kind)


def _quoted(text: Expression) -> Expression:
    """Return the text of a value as JSON: strings, which the reader returns without quotes, get them back."""
    quoted = f.to_json(f.array(text))
    string = f.substring(quoted, f.lit(2), f.length(quoted) - 2)
    is_nested = text.rlike(r"^[\[{].*[\]}]$") & f.get_json_object(text, "$").isNotNull()
    return f.when(is_nested, text).when(text.isNotNull(), string)
