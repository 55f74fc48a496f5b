"""JSON values as comparable texts of the table, and the repair of lines with bad values.

Used by the parse (`columns`, `envelopes`, `records`, `slice_batches`) and by `widening`.

The text of a value has no spaces, sorted names, and one text for each number. So equal values have equal
texts if their numbers are below 10^40, whatever order, spaces and escapes the source writes. No digit of a
number is lost. Of equal names in an object, the last one wins.

First the repair of a line that the decoder refuses (`repair_line`); then the text of one value (`JsonTexts`),
and of the values of a whole column (`JsonColumn`).

Spec: RFC 8259, sections 7 to 9; the Unicode Standard, chapter 3.9 (U+FFFD for what cannot be decoded).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET, Raw

from elt_assets.lake.worker.values import shortest_text

MAX_DEPTH = 1000
"""Levels of arrays and objects in a JSON value. A deeper value becomes null."""
CUT_DEPTH = MAX_DEPTH + 600
"""Levels of a line from which its values are left out here: it has those of the stream's schema besides."""

_TOKENS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]|-?Infinity|NaN', re.DOTALL)
_ESCAPES = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)
_UNDECODED = re.compile("[\udc80-\udcff]+")
_CONTROLS = re.compile("[\x00-\x1f]")
_UNUSED = [chr(code) for code in range(0xFDD0, 0xFDF0)]
"""Characters that Unicode reserves for marks inside of a program."""


@dataclass(frozen=True)
class Marks:
    """The characters that mark bad texts, and values that were left out, in one repaired line, as UTF-8."""

    text: bytes
    value: bytes

    def remove_from(self, raw: bytes) -> bytes:
        """Return JSON without the marks."""
        return raw.replace(self.text, b"").replace(self.value, b"")

    def unmark_names(self, values: Mapping[str, Raw]) -> dict[str, Raw]:
        """Return the values of an object by their names without marks: a schema has the same names."""
        return {name.replace(self.text.decode(), ""): value for name, value in values.items()}


def repair_line(line: bytes) -> tuple[bytes, Marks]:
    """Return a line in which bad texts and values that are too deep are replaced and marked.

    The decoder refuses the line, though only a value in it is bad. The marks tell `columns.Converter` which
    values were repaired.

    A bad text has half of a surrogate pair, or bytes that are not UTF-8: a text or JSON column keeps it with
    U+FFFD, recorded as TRUNCATED; in any other column it is a misfit. A value that is nested too deeply
    becomes null. A control character in a text, which JSON wants escaped, is kept: it is no change. A number
    that is not finite (`NaN`, `Infinity`) becomes a string of that name: it is a value of other types than
    numbers. What else is not JSON stays as it is.
    """
    text = line.decode("utf-8", "surrogateescape")
    escaped = text.lower()
    text_mark, value_mark = [
        mark for mark in _UNUSED if mark not in text and f"\\u{ord(mark):04x}" not in escaped
    ][:2]
    parts: list[str] = []
    depth = last = 0
    cut = -1
    for token in _TOKENS.finditer(text):
        first = text[token.start()]
        if first in "[{":
            depth += 1
            if depth == CUT_DEPTH and cut < 0:
                cut = token.start()
        elif first in "]}":
            if depth == CUT_DEPTH and cut >= 0:
                parts += [text[last:cut], f'"{value_mark}"']
                last, cut = token.end(), -1
            depth -= 1
        elif cut < 0:
            value = _repair_text(token[0], text_mark) if first == '"' else f'"{token[0]}"'
            parts += [text[last : token.start()], value]
            last = token.end()
    parts.append(text[last:])
    marks = Marks(text_mark.encode(), value_mark.encode())
    return "".join(parts).encode("utf-8", "replace"), marks


def _repair_text(text: str, mark: str) -> str:
    """Return a JSON string that the decoder accepts."""
    bad = f"{mark}\ufffd"
    if "\\" in text:
        text = _ESCAPES.sub(lambda match: bad if match[1] else match[0], text)
    text = _UNDECODED.sub(bad, text)
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def is_too_deep(raw: bytes) -> bool:
    """Return whether a JSON value has more levels than `MAX_DEPTH`."""
    if len(raw) <= 2 * MAX_DEPTH or raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH:
        return False
    depth = 0
    for token in _TOKENS.finditer(raw.decode("utf-8", "replace")):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
        if depth > MAX_DEPTH:
            return True
    return False


class JsonTexts:
    """Writes JSON values as texts. Its decoder cannot be sent to a worker, so it is made there."""

    def __init__(self) -> None:
        self._decode = msgspec.json.Decoder(float_hook=read_float).decode
        self._encode = msgspec.json.Encoder(order="sorted").encode_lines

    def normalize(self, values: Sequence[bytes]) -> list[str]:
        """Return the texts of JSON values. To decode them together takes half of the time of one by one.

        Raises:
            msgspec.MsgspecError, RecursionError, ValueError: a value cannot be decoded.
        """
        texts = self.encode(self.decode(b"[%b]" % b",".join(values)))
        if len(texts) != len(values):
            raise ValueError("a value is not one JSON value")
        return texts

    def decode(self, text: bytes) -> Any:
        """Return a JSON value, with numbers that have a point or an exponent as `Raw`."""
        return self._decode(text)

    def encode(self, values: Sequence[Any]) -> list[str]:
        """Return the texts of decoded values. `Raw` stands for a text of this form."""
        return self.encode_lines(values).decode().split("\n")[:-1]

    def encode_lines(self, values: Sequence[Any]) -> bytes:
        """Return the texts of decoded values, each on a line."""
        return self._encode(values)


def read_float(text: str) -> Raw:
    """Return the one text of a number that has a point or an exponent."""
    return Raw(shortest_text(text).encode())


_MAX_NAMES = 64
"""Maximum number of names in the objects of a column whose type is learned."""
_SAMPLE = 1000
"""Number of objects from which it is learned."""
_MAX_TYPES = 4
"""Number of types that are learned for a column: objects with ever more names are decoded without one."""
_MAX_SIZE = (1 << 31) - 1


class JsonColumn:
    """Normalizes the texts of one column, batch after batch.

    The objects of a column mostly have the same few names. So their type is learned from the first ones: to
    decode objects of a known type takes half of the time.
    """

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
