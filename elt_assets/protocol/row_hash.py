"""The hash of a row, by which a source and a table are compared: one definition for both sides.

A source that cannot compute it in its database (`connectors.sql.comparison`) and the lake's tasks call
`hash_rows`; the expressions of databases (`connectors.postgres.comparison`, `connectors.mysql.comparison`)
give the same numbers, which `tests/protocol/test_row_hash.py` checks for any values of all types.

The hash is the first 8 bytes of the MD5 of the row's text in UTF-8, as an unsigned big-endian number. The sum
of hashes is taken modulo 2^64. MD5 is no protection here: it is what databases have.

The text of a row is the texts of its key and of its columns, in the order of the message COMPARISON, joined
by `,`. Rows with different values have different texts: the text of a type has no comma, but for a text's,
which begins with its length.

| type | text of a value; that of a null is empty |
|---|---|
| `int64` | its digits, with `-` before a negative number |
| `decimal128(DIGITS, PLACES)` | plain digits with exactly these places: `-0.50` |
| `bool` | `1` or `0` |
| `date32` | days since 1970-01-01 |
| `timestamp[us]`, `timestamp[us, tz=UTC]` | microseconds since 1970-01-01T00:00:00 |
| `string` | the number of its bytes, `:`, and the text |
| `binary` | `x` and its bytes in lower-case hex |
| `double`, `float` | the 8 or 4 bytes of the number in IEEE 754, big-endian, in lower-case hex |

A `float` is a number of single precision, whose column in the lake has the double with the same shortest
text: it is rounded to the single again. Sources import the module with the first rows, as it imports pyarrow.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

try:  # it takes three quarters of the time, and no policy of the machine forbids it
    from _md5 import md5  # type: ignore[import-not-found]
except ImportError:  # a Python that is built without it
    from hashlib import md5

MODULUS = 1 << 64
"""Sums of hashes are taken modulo this number."""
_DECIMAL = re.compile(r"decimal128\((\d+), (\d+)\)")
_MAX_DIGITS = 38
_HEX = "0123456789abcdef"


def hash_rows(columns: Sequence[pa.Array], kinds: Sequence[str]) -> np.ndarray:
    """Return the hashes of rows, as numbers of 64 bits without a sign.

    Args:
        columns: the values of the key and of the other columns, in the types that `kinds` name. A decimal may
            have another scale, if it loses no digit.
        kinds: the types, as in the message COMPARISON.

    Raises:
        pyarrow.ArrowInvalid: a decimal has more places than its type.
    """
    texts = [_write_texts(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    rows = pc.binary_join_element_wise(*texts, b",", null_handling="replace", null_replacement=b"")
    digests = b"".join([md5(row).digest() for row in rows.to_pylist()])  # noqa: S324 - no protection
    return np.frombuffer(digests, ">u8")[::2].astype(np.uint64)


def add_hashes(hashes: np.ndarray) -> int:
    """Return the sum of hashes modulo 2^64."""
    return int(hashes.sum(dtype=hashes.dtype))  # numpy's sum wraps around


def _write_texts(values: pa.Array, kind: str) -> pa.Array:
    """Return the texts of values, as bytes."""
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    decimal = _DECIMAL.fullmatch(kind)
    if decimal:
        return _write_decimals(values, int(decimal[2])).cast(pa.binary())
    if kind == "string":
        encoded = values.cast(pa.binary())
        lengths = pc.binary_length(encoded).cast(pa.string()).cast(pa.binary())
        return pc.binary_join_element_wise(lengths, encoded, b":")
    if kind == "binary":
        data = values.cast(pa.binary())
        offsets = _read_offsets(data)
        return pc.binary_join_element_wise(b"x", _write_hex(_read_bytes(data), offsets, data), b"")
    if kind in ("double", "float"):
        return _write_numbers(values, kind)
    number = _PLAIN[kind]
    return values.cast(number).cast(pa.string()).cast(pa.binary())


def _write_decimals(values: pa.Array, places: int) -> pa.Array:
    """Return plain digits: Arrow's own cast has exponents for small numbers."""
    if pa.types.is_integer(values.type):
        values = values.cast(pa.decimal128(_MAX_DIGITS, 0))
    exact = values.cast(pa.decimal128(_MAX_DIGITS, places))
    numbers = _find_integers(exact)
    if numbers is not None:
        return _write_integers(numbers, places)
    whole = pa.Array.from_buffers(
        pa.decimal128(_MAX_DIGITS, 0), len(exact), exact.buffers(), offset=exact.offset
    )
    digits = whole.cast(pa.string())
    if places == 0:
        return digits
    padded = pc.utf8_lpad(pc.replace_substring(digits, "-", ""), places + 1, "0")
    sign = pc.if_else(pc.starts_with(digits, "-"), "-", "")
    first = pc.utf8_slice_codeunits(padded, 0, -places)
    last = pc.utf8_slice_codeunits(padded, -places)
    return pc.binary_join_element_wise(pc.binary_join_element_wise(sign, first, ""), last, ".")


def _find_integers(decimals: pa.Array) -> pa.Array | None:
    """Return the digits of decimals, without their points, as numbers of 64 bits; None if one has more."""
    words = np.frombuffer(decimals.buffers()[1], "<i8").reshape(-1, 2)
    low, high = words[decimals.offset : decimals.offset + len(decimals)].T
    is_null = np.asarray(decimals.is_null())
    # The least number has no positive counterpart.
    if not ((high == low >> 63) & (low != np.iinfo(np.int64).min) | is_null).all():
        return None
    return pa.array(low, mask=is_null if decimals.null_count else None)


def _write_integers(numbers: pa.Array, places: int) -> pa.Array:
    """Return the texts of decimals from their digits without the point."""
    if places == 0:
        return numbers.cast(pa.string())
    sizes = pc.abs(numbers)
    first = pc.divide(sizes, 10**places)
    rest = pc.subtract(sizes, pc.multiply(first, 10**places))
    # A one before the places keeps their zeros, and gives its place to the point.
    last = pc.utf8_replace_slice(pc.add(rest, 10**places).cast(pa.string()), 0, 1, ".")
    sign = pc.if_else(pc.less(numbers, 0), "-", "")
    return pc.binary_join_element_wise(sign, first.cast(pa.string()), last, "")


def _write_numbers(values: pa.Array, kind: str) -> pa.Array:
    size = 8 if kind == "double" else 4
    numbers = values.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False)
    data = numbers.astype(f">f{size}").view(np.uint8)
    offsets = np.arange(len(values) + 1, dtype=np.int32) * size
    return _write_hex(data, offsets, values)


def _write_hex(data: np.ndarray, offsets: np.ndarray, like: pa.Array) -> pa.Array:
    """Return bytes in hex, with the nulls of another array.

    Args:
        data: all bytes, of which each value has those between two offsets.
    """
    pairs = np.array([(a + b).encode() for a in _HEX for b in _HEX], "S2")
    used = data[offsets[0] : offsets[-1]]
    buffers = [
        None,
        pa.py_buffer(((offsets - offsets[0]) * 2).astype(np.int32)),
        pa.py_buffer(pairs[used].tobytes()),
    ]
    texts = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
    if not like.null_count:
        return texts

    return pc.if_else(like.is_valid(), texts, pa.scalar(None, pa.binary()))


def _read_offsets(values: pa.Array) -> np.ndarray:
    offsets = np.frombuffer(values.buffers()[1], np.int32)
    return offsets[values.offset : values.offset + len(values) + 1]


def _read_bytes(values: pa.Array) -> np.ndarray:
    data = values.buffers()[2]
    return np.frombuffer(data or b"", np.uint8)


_PLAIN = {
    "int64": "int64",
    "bool": "int8",
    "date32": "int32",
    "timestamp[us]": "int64",
    "timestamp[us, tz=UTC]": "int64",
}
"""Types, and the numbers in Arrow whose digits are the text of their values."""
