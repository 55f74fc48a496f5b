"""States of older versions of a connector, and states that are too old to continue from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from connectors.declarative.cursors.cursor import NO_CURSOR, STATES, Cursor, State
from connectors.declarative.cursors.settings import Length, text_of
from connectors.declarative.manifest import clock, components
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
    if isinstance(router, components.UnionPartitionRouter):
        fields = [text_of(router.partition_field, config)]
    else:
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


def is_within_retention(period: Length, state: State, cursors: Iterable[Cursor]) -> bool:
    """Return whether an API that keeps its data for a period still has what follows a state.

    Args:
        period: the length of time for which the API keeps data.
        state: the state.
        cursors: the cursors that may have sent the state.
    """
    if state.get(NO_CURSOR):
        return True
    for cursor in cursors:
        try:
            moment = cursor.moment_of(state)
        except ConfigError:
            continue
        if moment is not None:
            return bool(moment >= clock.now() - period)
    return False


def _is_by_key(state: State, cursor_field: str) -> bool:
    """Return whether a state has an object with the cursor field alone for each key."""
    return bool(state) and all(
        isinstance(value, Mapping) and list(value) == [cursor_field] for value in state.values()
    )
