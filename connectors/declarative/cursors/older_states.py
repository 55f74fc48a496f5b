"""States of older versions of a connector."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from connectors.declarative.cursors.cursor import STATES, State
from connectors.declarative.cursors.settings import text_of
from connectors.declarative.manifest import components
from elt_assets.errors import ConfigError

Migration = Callable[[State], State]
"""Function that returns a state in the present form; a state that has another form unchanged."""


def legacy_migration(
    component: components.LegacyToPerPartitionStateMigration,
    stream: components.DeclarativeStream,
    config: Mapping[str, Any],
) -> Migration:
    """Return the migration that a LegacyToPerPartitionStateMigration describes.

    It changes `{"1": {"updated_at": "2024-01-01"}}`, the cursors by the keys of parent records, into a list.

    Raises:
        ConfigError: the stream has no partitions by a parent's key, or no cursor.
    """
    router = getattr(stream.retriever, "partition_router", None)
    cursor_field = text_of(getattr(stream.incremental_sync, "cursor_field", None), config)
    parents = getattr(router, "parent_stream_configs", None) or ()
    fields = [text_of(parent.partition_field, config) for parent in parents]
    if not fields or not cursor_field:
        raise ConfigError(
            f"{component.place} needs a stream with a parent stream and an incremental sync",
            guidance="remove it, or add them",
        )

    def migrate(state: State) -> State:
        if len(fields) != 1 or not _is_by_key(state, cursor_field):
            return state
        return {
            STATES: [
                {"partition": {fields[0]: key}, "cursor": dict(cursor)}
                for key, cursor in state.items()
            ]
        }

    return migrate


def _is_by_key(state: State, cursor_field: str) -> bool:
    """Return whether a state has an object with the cursor field alone for each key."""
    return bool(state) and all(
        isinstance(value, Mapping) and list(value) == [cursor_field] for value in state.values()
    )
