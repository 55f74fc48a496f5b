"""What a row does not keep of its record, as `_airbyte_meta.changes` records it.

Values became null, were rounded, or had bad characters replaced.

Spec: AirbyteRecordMessage.meta.changes (0.6).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

NULLED = "NULLED"
"""The change of a value that became null."""
MISFIT = (NULLED, "DESTINATION_TYPECAST_ERROR")
"""A value of another type or form, or out of range."""
OVERSIZE = (NULLED, "DESTINATION_FIELD_SIZE_LIMITATION")
"""A value beyond a limit of size, depth or digits."""
ROUNDED = ("TRUNCATED", "DESTINATION_FIELD_SIZE_LIMITATION")
"""A value of which the column keeps a part: a rounded number, a time cut to microseconds."""
RESPELLED = ("RESPELLED", "")
"""A double that is kept, but not by its shortest text. It is a change only in a key: two numbers that differ
in the source must not be one key, so that of all texts of a double one is accepted."""
REPLACED = ("TRUNCATED", "DESTINATION_SERIALIZATION_ERROR")
"""A text in which U+FFFD replaces what is not a character."""

Report = Callable[[str, str], object]
"""Reports a change of the value that is read: its kind, and its reason."""


_RESPELLED = RESPELLED[0]


class BecomesNull(Exception):
    """A value that becomes null. args: the kind of the change, and its reason."""


class ValueChange(NamedTuple):
    """A change of a value."""

    order: tuple[int, ...]  # the position of its column, and of the fields in it
    field: str
    change: str
    reason: str


_order = operator.attrgetter("order")


@dataclass(frozen=True)
class FieldPath:
    """A field of the stream's schema, as changes name it. All values in an array have the array's path."""

    order: tuple[int, ...]
    name: str
    is_in_array: bool = False

    def child(self, number: int, name: str) -> FieldPath:
        """Return the path of a field of the object at this path."""
        if self.is_in_array:
            return self
        return FieldPath((*self.order, number), f"{self.name}.{name}" if self.order else name)

    @property
    def items(self) -> FieldPath:
        return FieldPath(self.order, self.name, is_in_array=True)


WHOLE_RECORD = FieldPath((), "")
"""The path of the record itself."""


class BlockChanges:
    """The changes of the records of a block, by the positions of their lines.

    Args:
        key: the paths of the key's fields.
    """

    def __init__(self, key: frozenset[str] = frozenset()):
        self._key = key
        self.by_line: dict[int, dict[ValueChange, None]] = {}

    def add(self, line: int, path: FieldPath, change: str, reason: str) -> None:
        if change == _RESPELLED:
            if path.name not in self._key:
                return
            change, reason = ROUNDED
        entry = ValueChange(path.order, path.name, change, reason)
        self.by_line.setdefault(line, {})[entry] = None

    def list_for(self, line: int) -> Sequence[ValueChange]:
        """Return the changes of a record, in the order of the columns."""
        changes = self.by_line.get(line, ())
        return sorted(changes, key=_order) if len(changes) > 1 else list(changes)
