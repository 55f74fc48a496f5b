"""Columns of JSON texts in the form of `json_texts`: whole columns at once.

The objects of a column mostly have the same few names. So their type is learned from the first ones: to
decode objects of a known type takes half of the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET, Raw

from elt_assets.lake.spark.types.json_texts import JsonTexts, read_float

_MAX_NAMES = 64
"""Maximum number of names in the objects of a column whose type is learned."""
_SAMPLE = 1000
"""Number of objects from which it is learned."""
_MAX_TYPES = 4
"""Number of types that are learned for a column: objects with ever more names are decoded without one."""
_MAX_SIZE = (1 << 31) - 1


class JsonColumn:
    """Normalizes the texts of one column, batch after batch."""

    def __init__(self) -> None:
        self._texts = JsonTexts()
        self._decode_raw = msgspec.json.Decoder(list[Raw]).decode
        self._encode_typed = msgspec.json.Encoder(order="deterministic").encode_lines
        self._decode_typed: Any = None
        self._types = 0

    def normalize(self, texts: pa.Array, *, are_values: bool = False) -> pa.Array:
        """Return texts of JSON in the one form of their values, as strings; null for the text `null`.

        Args:
            are_values: each text is known to be one JSON value, as in a column of Arrow's type for JSON.

        Raises:
            msgspec.MsgspecError, RecursionError, ValueError: a text is not one JSON value.
        """
        encoded = texts.drop_null()
        if not len(encoded):
            return pa.nulls(len(texts), pa.string())
        joined = b"[%b]" % _join(encoded)
        if are_values or self._are_separate(joined, encoded):
            lines = self._write(joined)
        else:
            lines = b"\n".join(map(self._normalize_alone, encoded.to_pylist())) + b"\n"
        column = _make_column(lines, texts)
        is_null = pc.equal(column, "null")
        if pc.any(is_null).as_py():
            column = pc.if_else(is_null, pa.scalar(None, pa.string()), column)
        return column

    def _are_separate(self, joined: bytes, texts: pa.Array) -> bool:
        """Return whether each text is one value, without spaces around it: `[1` and `2]` are one together."""
        sizes = pc.binary_length(texts).to_numpy()
        values = self._decode_raw(joined)
        return len(values) == len(sizes) and bool(
            (np.fromiter(map(len, values), np.int64, len(values)) == sizes).all()
        )

    def _normalize_alone(self, text: str) -> bytes:
        return self._write(b"[%b]" % bytes(msgspec.json.decode(text, type=Raw)))[:-1]

    def _write(self, joined: bytes) -> bytes:
        """Return the values of a list in their one form, each on a line."""
        if self._decode_typed is not None:
            try:
                return self._encode_typed(self._decode_typed(joined))
            except msgspec.ValidationError:  # a value is no object, or has another name
                self._decode_typed = None
        values = self._texts.decode(joined)
        if self._types < _MAX_TYPES:
            self._types += 1
            self._decode_typed = _make_decoder(values)
        return self._texts.encode_lines(values)


def _make_decoder(values: Sequence[Any]) -> Any:
    """Return the decoder of a list of objects with the names of these values; None if they are no objects."""
    names: dict[str, None] = {}
    for value in islice(values, _SAMPLE):
        if not isinstance(value, Mapping):
            return None
        names |= dict.fromkeys(value)
    if len(names) > _MAX_NAMES:
        return None
    fields = {f"f{number}": name for number, name in enumerate(sorted(names))}
    try:
        kind = msgspec.defstruct(
            "Object",
            [(field, Any, UNSET) for field in fields],
            rename=fields,
            forbid_unknown_fields=True,
            gc=False,
        )
    except ValueError:  # a name that msgspec does not take, such as one with a quote
        return None
    kinds = list[kind]  # type: ignore[valid-type]
    return msgspec.json.Decoder(kinds, float_hook=read_float).decode


def _join(texts: pa.Array) -> bytes:
    """Return texts with commas between them."""
    whole = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    return bytes(pc.binary_join(whole, ",")[0].as_buffer())


def _make_column(lines: bytes, texts: pa.Array) -> pa.Array:
    """Return lines as a column, with nulls where some texts are null.

    Raises:
        ValueError: they have more bytes than a column takes.
    """
    if len(lines) > _MAX_SIZE:
        raise ValueError(f"the texts of a column have {len(lines):,} bytes")
    ends = np.flatnonzero(np.frombuffer(lines, np.uint8) == 10)
    is_valid = texts.is_valid().to_numpy(zero_copy_only=False)
    if len(ends) != is_valid.sum():
        raise ValueError(f"{is_valid.sum()} texts have {len(ends)} values")
    sizes = np.zeros(len(texts), np.int32)
    sizes[is_valid] = np.diff(ends, prepend=-1) - 1
    offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(sizes, dtype=np.int32)])
    mask = None
    if texts.null_count:
        mask = pa.py_buffer(np.packbits(is_valid, bitorder="little"))
    data = pa.py_buffer(lines.replace(b"\n", b""))
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(offsets), data, mask)
