"""The description of columns for tasks, which know nothing of the project's own schemas."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

ARRAY, STRUCT, UNREAD = "ARRAY", "STRUCT", "UNREAD"


@dataclass(frozen=True)
class Field:
    """A column, a field nested in one, or the element of an array.

    Attributes:
        kind: the name of a `Scalar`, or ARRAY, STRUCT or UNREAD.
        type: the type of the column in the file.
        inner: the fields of an object, or the one element of an array.
    """

    source: str
    name: str
    kind: str
    type: pa.DataType
    inner: tuple[Field, ...] = ()
