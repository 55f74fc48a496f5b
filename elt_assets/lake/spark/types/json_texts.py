"""JSON values as the table stores them: without spaces, with sorted names and one text for each number.

Equal values have equal texts if their numbers are below 10^40, whatever order, spaces and escapes the source
writes, so that texts can be compared and grouped. No digit of a number is lost. Of equal names in an object,
the last one wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw

from elt_assets.lake.spark.types.numbers import shortest_text


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
