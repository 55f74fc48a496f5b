"""The values of a column in a wider type, with one text for each value, and the task that rewrites files.

`write.rewrite` runs the task.

A text is the one that the parse stores for the value as a source sends it, so that rows from before a change
of the type compare with the rows after it:

| type | text |
|---|---|
| number | `shortest_text`: equal numbers have equal texts. That of a double is its shortest repr |
| boolean | `true`, `false` |
| date | `2024-01-01` |
| timestamp | `2024-01-01T00:00:00Z`; without zone, the same without `Z` |
| binary | base64, with padding |

The fraction of a second is left out if it is zero; it has three digits if these are exact, else six. In JSON,
numbers and booleans are values and the others strings; null fields of an object are left out.

Test: `tests/lake/test_wider_values.py::test_a_value_has_the_text_that_the_parse_gives_it`
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw

from elt_assets.lake.worker.foreign_types import conform_columns, replace_items
from elt_assets.lake.worker.json_texts import JsonTexts
from elt_assets.lake.worker.kinds import ARRAY, DECODING_ERRORS, STRUCT, UNREAD, Field
from elt_assets.lake.worker.parquet import (
    Output,
    WrittenFile,
    discard_on_error,
    open_parquet,
    open_writer,
    read_batches,
)
from elt_assets.lake.worker.values import double_text, shortest_text

_NUMBERS = frozenset({"INTEGER", "BIG_INTEGER", "NUMBER", "BIG_NUMBER"})
_TIMES = frozenset({"DATE", "TIMESTAMP", "TIMESTAMP_NTZ"})
_EXACT = 2**53
"""The integer up to which every integer is a double."""


class Unfit(Exception):
    """A value would change in the wider type. args: the path of its field."""


def widen_values(values: Any, before: Field, after: Field, path: str = "") -> Any:
    """Return the values of a column in its wider type. A nested field that is new is null.

    Args:
        path: of the column, for the error.

    Raises:
        Unfit: a value would change.
    """
    if before == after:
        return values
    if after.kind == "JSON":
        codec = JsonTexts()
        texts = codec.encode(_decode(values, before, codec))
        return pa.array([None if text == "null" else text for text in texts], after.type)
    if after.kind == ARRAY:
        items = widen_values(values.flatten(), before.inner[0], after.inner[0], f"{path}[]")
        return replace_items(values, items, after.type)
    if after.kind == STRUCT:
        return _widen_objects(values, before, after, path)
    try:
        if after.kind == "TEXT":
            return texts_of(values, before.kind)
        wider = values.cast(after.type, safe=after.kind != "NUMBER")
    except ValueError:
        raise Unfit(path) from None
    if after.kind == "NUMBER" and not _are_doubles(values):
        raise Unfit(path)
    return wider


def texts_of(values: Any, kind: str) -> Any:
    """Return the texts of a column's values.

    Args:
        kind: a stored scalar that is not text.

    Raises:
        ValueError: a date is not in the years from 0 to 9999, which have four digits.
    """
    if kind in ("BOOLEAN", "INTEGER"):
        return values.cast(pa.string())
    if kind in _TIMES:
        texts = pc.replace_substring(values.cast(pa.string()), " ", "T")
        if not pc.all(pc.match_substring_regex(texts, r"^\d{4}-"), min_count=0).as_py():
            raise ValueError("a year has not four digits")
        texts = pc.replace_substring_regex(texts, r"\.000000", "")
        return pc.replace_substring_regex(texts, r"(\.\d{3})000", r"\1")
    return pa.array(
        [None if value is None else _text(value) for value in values.to_pylist()], pa.string()
    )


def _text(value: Any) -> str:
    if isinstance(value, float):
        return double_text(value)
    return b64encode(value).decode() if isinstance(value, bytes) else shortest_text(str(value))


def _widen_objects(values: Any, before: Field, after: Field, path: str) -> Any:
    inner = {field.name: field for field in before.inner}
    columns = [
        widen_values(
            pc.struct_field(values, [field.name]),
            inner[field.name],
            field,
            f"{path}.{field.source}",
        )
        if field.name in inner
        else pa.nulls(len(values), field.type)
        for field in after.inner
    ]
    return pa.StructArray.from_arrays(columns, fields=list(after.type), mask=values.is_null())


def _are_doubles(values: Any) -> bool:
    is_large = pc.or_(pc.less(values, -_EXACT), pc.greater(values, _EXACT))
    return all(int(float(value)) == value for value in values.filter(is_large).to_pylist())


def _decode(values: Any, field: Field, codec: JsonTexts) -> list[Any]:
    """Return values as they are in JSON; what has its text already is `Raw`."""
    if field.kind == ARRAY:
        items = iter(_decode(values.flatten(), field.inner[0], codec))
        sizes = pc.list_value_length(values).to_pylist()
        return [None if size is None else list(islice(items, size)) for size in sizes]
    if field.kind == STRUCT:
        columns = [_decode(pc.struct_field(values, [own.name]), own, codec) for own in field.inner]
        names = [own.source for own in field.inner]
        return [
            {name: value for name, value in zip(names, row, strict=True) if value is not None}
            if is_object
            else None
            for is_object, *row in zip(values.is_valid().to_pylist(), *columns, strict=True)
        ]
    if field.kind in ("TEXT", "BOOLEAN"):
        return list(values.to_pylist())
    if field.kind == "JSON":
        return [None if text is None else _as_json(text, codec) for text in values.to_pylist()]
    if field.kind == UNREAD:
        return list(values.to_pylist(maps_as_pydicts="strict"))
    texts = texts_of(values, field.kind).to_pylist()
    return (
        [(text if text is None or text[-1].isalpha() else Raw(text.encode())) for text in texts]
        if field.kind in _NUMBERS
        else texts
    )


def _as_json(text: str, codec: JsonTexts) -> Any:
    """Return a JSON text in the one form; another engine may have written a text that is none."""
    try:
        return Raw(codec.normalize([text.encode()])[0].encode())
    except DECODING_ERRORS:
        return text


@dataclass(frozen=True)
class WideningJob:
    """Files to rewrite."""

    groups: Sequence[Sequence[str]]  # the files of each task, relative to the root of `output`
    output: Output
    schema: pa.Schema  # of the files
    columns: Sequence[tuple[Field, Field | None]]  # what each is then, and was; None if it is new


def make_widening(
    job: WideningJob,
) -> Callable[[int], tuple[Sequence[WrittenFile], str | None]]:
    """Return the function that rewrites the files of the group of a number.

    It returns the new files; or none, and the path of a field whose value would change.
    """

    def rewrite(number: int) -> tuple[Sequence[WrittenFile], str | None]:
        system, root = job.output.root
        writer = open_writer(job.output)
        try:
            with discard_on_error(writer):
                for name in job.groups[number]:
                    with open_parquet(system, f"{root}/{name}") as file:
                        for rows in read_batches(file):
                            writer.write(_widen(job, conform_columns(rows, job.schema)))
                    writer.close()  # the rows of two files are never written to one
        except Unfit as unfit:
            return (), unfit.args[0]
        return writer.files, None

    return rewrite


def _widen(job: WideningJob, rows: pa.RecordBatch) -> pa.RecordBatch:
    names = set(rows.schema.names)
    columns = [
        pa.nulls(len(rows), after.type)
        if before is None or before.name not in names
        else widen_values(rows.column(before.name), before, after, before.source)
        for after, before in job.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=[after.name for after, _ in job.columns])
