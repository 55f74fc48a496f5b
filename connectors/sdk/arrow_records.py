"""Records of Arrow batches: the rows of a slice as a source sends them in RECORD messages.

A batch may have a column that is no field: the changes of its rows, or its rows in JSON. It is known by a
mark that only this process has, and never by its name, which a column of the source may have too; a file of
the source, whose metadata may be anything, does not have the mark either.
"""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw

from connectors.sdk.encoding import encode
from connectors.sdk.items import Change, Page, Record
from connectors.sdk.output import encode_record
from elt_assets.protocol.messages import CHANGES_COLUMN

_CHANGES = pa.list_(pa.struct([(name, pa.string()) for name in ("field", "change", "reason")]))
_BREAK = re.compile(rb"[\r\n]")
_CHANGES_MARK, _JSON_MARK = ({b"elt.mark": secrets.token_bytes(16)} for _ in range(2))
_HEAD, _TAIL = b'{"data":', b',"emitted_at":%d}\n'


def report_changes(batch: pa.RecordBatch, changes: pa.Array) -> pa.RecordBatch:
    """Return a batch with the changes of its rows, as `list_changes` makes them."""
    return batch.append_column(
        pa.field(CHANGES_COLUMN, changes.type, metadata=_CHANGES_MARK), changes
    )


def make_json_rows(records: pa.Array) -> pa.RecordBatch:
    """Return a batch whose rows are records in JSON, as bytes.

    A row that is JSON, but no object, is rejected by the lake: so a source reports what it cannot read.
    """
    return pa.RecordBatch.from_arrays(
        [records], schema=pa.schema([pa.field("record", records.type, metadata=_JSON_MARK)])
    )


def split_changes(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array | None]:
    """Return the fields of a batch, and the changes of its rows; None if it reports none."""
    for position, field in enumerate(batch.schema):
        if field.metadata == _CHANGES_MARK:
            return batch.remove_column(position), batch.column(position)
    return batch, None


def has_json_rows(batch: pa.RecordBatch) -> bool:
    """Return whether the rows of a batch are records in JSON."""
    return bool(batch.num_columns == 1 and batch.schema.field(0).metadata == _JSON_MARK)


def page_of(batch: pa.RecordBatch, schema: Mapping[str, Any]) -> Page:
    """Return the rows of a batch as records, with the changes that it reports.

    Args:
        schema: the JSON schema of the stream, which says which texts are JSON.
    """
    encoded = _records_of(batch)
    if encoded is not None:
        raws: list[Any] = list(map(Raw, encoded.to_pylist()))
        return Page(raws)
    properties = schema.get("properties") or {}
    changes = changes_of(batch)
    batch, _ = split_changes(batch)
    names = batch.schema.names
    columns = [
        list_values(column, properties.get(name))
        for name, column in zip(names, batch.columns, strict=True)
    ]
    records: list[Record] = [
        dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)
    ]
    return Page(records or [{} for _ in range(len(batch))], changes)


def changes_of(batch: pa.RecordBatch) -> dict[int, Sequence[Change]]:
    """Return the changes that a batch reports, by the number of the row."""
    _, reported = split_changes(batch)
    lists = [] if reported is None else reported.to_pylist()
    return {row: changes for row, changes in enumerate(lists) if changes}


def list_changes(nulled: Mapping[tuple[str, str], pa.Array], count: int) -> pa.Array:
    """Return the changes of each row, for `report_changes`.

    Args:
        nulled: which values are null that the source does not have so, by the field and the reason.
        count: the number of rows.
    """
    if not nulled:
        return pa.nulls(count, _CHANGES)
    masks = np.array([mask.to_numpy(zero_copy_only=False) for mask in nulled.values()])
    rows, entries = np.nonzero(masks.T)
    offsets = np.searchsorted(rows, np.arange(count + 1)).astype(np.int32)
    kinds = [{"field": name, "change": "NULLED", "reason": reason} for name, reason in nulled]
    values = pa.array(kinds, _CHANGES.value_type).take(pa.array(entries))
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def lines_of(batch: pa.RecordBatch, schema: Mapping[str, Any], emitted_at: int) -> bytes:
    """Return the rows of a batch as lines of JSON, in the form of a staged record.

    Args:
        emitted_at: the time of the records, in milliseconds since 1970.
    """
    encoded = _records_of(batch)
    if encoded is not None:
        parts = (pa.scalar(_HEAD), encoded, pa.scalar(_TAIL % emitted_at), pa.scalar(b""))
        joined = pc.binary_join_element_wise(*parts)
        size = pc.sum(pc.binary_length(joined)).as_py() or 0
        return bytes(joined.buffers()[2][:size])
    page = page_of(batch, schema)
    lines = []
    for number, record in enumerate(page.records):
        changes = page.changes.get(number)
        meta = b"" if changes is None else b',"meta":%b' % encode({"changes": changes})
        lines.append(b'{"data":%b,"emitted_at":%d%b}\n' % (encode_record(record), emitted_at, meta))
    return b"".join(lines)


def _records_of(batch: pa.RecordBatch) -> pa.Array | None:
    """Return the rows of a batch as JSON, if it has them so."""
    return batch.column(0) if has_json_rows(batch) else None


def list_values(column: pa.Array, declared: Any = None) -> list[Any]:
    """Return the values of a column as JSON has them.

    Args:
        declared: its JSON schema, which says whether its texts are JSON.
    """
    kind = column.type
    if isinstance(column, pa.ExtensionArray):
        column, kind = column.storage, column.storage.type
    if pa.types.is_temporal(kind) and not pa.types.is_duration(kind):
        texts = column.cast(pa.string())
        if pa.types.is_timestamp(kind):
            texts = pc.replace_substring(texts, " ", "T")
        return list(texts.to_pylist())
    values = column.to_pylist()
    convert = _converter(kind, declared)
    if convert is None:
        return list(values)
    return [None if value is None else convert(value) for value in values]


def _converter(kind: pa.DataType, declared: Any) -> Callable[[Any], Any] | None:
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return lambda value: base64.b64encode(value).decode()
    if (pa.types.is_string(kind) or pa.types.is_large_string(kind)) and _is_json(declared):
        return raw_or_text
    return None


def raw_or_text(text: str) -> Any:
    """Return a text of JSON as it stands, but on one line; one that is not JSON as a text."""
    encoded = text.encode()
    try:
        msgspec.json.decode(encoded)
        return Raw(msgspec.json.format(encoded, indent=-1) if _BREAK.search(encoded) else encoded)
    except (msgspec.MsgspecError, RecursionError):
        return text


def _is_json(declared: Any) -> bool:
    """Return whether a field may hold an object or a list, so that its texts are JSON."""
    if not isinstance(declared, Mapping):
        return False
    types = declared.get("type")
    names = {types} if isinstance(types, str) else set(types or ())
    return not names or bool(names & {"object", "array"})
