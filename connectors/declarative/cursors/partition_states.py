"""How far each partition of a stream was read, from a saved state in the form of the Airbyte CDK.

`per_partition` writes the new state.

    {"use_global_cursor": false, "states": [{"partition": {"id": 1, "parent_slice": {}}, "cursor": {...}}],
     "state": {...}, "lookback_window": 7, "parent_state": {"parents": {...}}}

Older forms are taken over: one cursor for all partitions, and partitions without `parent_slice`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from connectors.declarative.cursors.cursor import (
    GLOBAL_STATE,
    LOOKBACK,
    NO_CURSOR,
    PARENT_STATE,
    STATES,
    USE_GLOBAL,
    State,
    ValueCursor,
)
from connectors.declarative.cursors.routers import PARENT_SLICE
from connectors.sdk.encoding import encode
from connectors.sdk.state.partitions import identity
from elt_assets.errors import ConfigError

_SCALARS = (str, int, float)


class PartitionStates:
    """The states of partitions, each as JSON, so that a hundred thousand of them take little memory.

    Args:
        state: the state of the stream.
        cursor: the cursor of a partition.
        has_parents: whether the partitions have a `PARENT_SLICE`.

    Attributes:
        size: the size of the states in bytes.
        value: the value of the one cursor for all partitions; None if there is none.
        lookback: the seconds by which a partition without a state begins before that value.
        falls_back: whether a partition without a state begins at that value. Otherwise it is new, and begins
            at the start.
        parents: the states of the parent streams by name.

    Raises:
        ConfigError: the state cannot be used.
    """

    def __init__(self, state: State, cursor: ValueCursor[Any], *, has_parents: bool):
        state = {name: value for name, value in state.items() if name != NO_CURSOR}
        is_shared = STATES not in state and GLOBAL_STATE not in state
        shared_state = state if is_shared else state.get(GLOBAL_STATE)
        listed = state.get(STATES) or []
        self._cursor = cursor
        self._entries: dict[bytes, bytes] = {}
        self._older: dict[bytes, bytes] = {}
        self._converted: set[bytes] = set()
        self.size = 0
        self.value: Any = (
            cursor.value_in(shared_state) if isinstance(shared_state, Mapping) else None
        )
        self.lookback = _seconds(state.get(LOOKBACK))
        self.falls_back = bool(state.get(USE_GLOBAL)) or not listed
        self.parents: State = state.get(PARENT_STATE) or {}
        for partition, saved in _pairs(listed):
            self._add(partition, saved)
            if has_parents and PARENT_SLICE not in partition:
                self._older[_older_key(partition)] = identity(dict(partition))

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def find_start(self, key: bytes, partition: Mapping[str, Any]) -> State:
        """Return the state with which a partition begins; an empty one to begin at the start.

        Args:
            key: the identity of the partition.
            partition: its values.
        """
        encoded = self._entries.get(key)
        if encoded is None and self._older:
            older = self._older.get(_older_key(partition))
            if older is not None:
                self._converted.add(older)
                encoded = self._entries.get(older)
        if encoded is not None:
            saved: State = msgspec.json.decode(encoded)
            return saved
        if self.falls_back and self.value is not None:
            return self._cursor.state_of(self._cursor.subtract(self.value, self.lookback))
        return {}

    def keep(self, key: bytes, state: State) -> None:
        """Record the state of a partition; an empty one is not recorded."""
        if state:
            encoded = encode(state)
            self.size += len(encoded) - len(self._entries.get(key, b""))
            self.size += 0 if key in self._entries else len(key)
            self._entries[key] = encoded

    def clear(self) -> None:
        """Remove all states: one value takes their place."""
        self._entries.clear()
        self.size = 0

    def drop_converted(self) -> None:
        """Remove the states in an older form whose partitions have states in the present form."""
        for key in self._converted:
            self.size -= len(key) + len(self._entries.pop(key, b""))
        self._converted.clear()

    def encode_all(self, open_states: Iterable[tuple[bytes, State]]) -> Raw:
        """Return the states as a JSON array.

        Args:
            open_states: the partitions that are being read, and their states so far.
        """
        encoded_states = {key: encode(state) for key, state in open_states if state}
        pairs = {**self._entries, **encoded_states}.items()
        texts = (b'{"partition":%b,"cursor":%b}' % pair for pair in pairs)
        return Raw(b"[%b]" % b",".join(texts))

    def _add(self, partition: Mapping[str, Any], saved: State) -> None:
        """Record a saved state; of two states for one partition the earlier one counts."""
        key = identity(dict(partition))
        if key in self._entries:
            former_state = msgspec.json.decode(self._entries[key])
            value, former_value = self._cursor.value_in(saved), self._cursor.value_in(former_state)
            if value is not None and (former_value is None or value >= former_value):
                return
        self.keep(key, saved)


def _pairs(listed: Any) -> Iterator[tuple[Mapping[str, Any], State]]:
    is_list = isinstance(listed, list)
    for entry in listed if is_list else [None]:
        partition = entry.get("partition") if isinstance(entry, Mapping) else None
        cursor = entry.get("cursor") if isinstance(entry, Mapping) else None
        if not isinstance(partition, Mapping) or not isinstance(cursor, Mapping):
            raise ConfigError(
                "the `states` of the state are not a list of objects with a `partition` and a `cursor`",
                guidance="correct the state, or reset it to read the stream from the beginning",
            )
        yield partition, cursor


def _older_key(partition: Mapping[str, Any]) -> bytes:
    """Return what tells apart partitions in states of older forms: their values as text."""
    values = {name: value for name, value in partition.items() if name != PARENT_SLICE}
    return identity(
        {
            name: str(value) if isinstance(value, _SCALARS) else value
            for name, value in values.items()
        }
    )


def _seconds(lookback: Any) -> int:
    is_number = isinstance(lookback, int | float) and not isinstance(lookback, bool)
    return max(0, int(lookback)) if is_number else 0
