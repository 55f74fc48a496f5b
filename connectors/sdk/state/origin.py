"""The origin of a state: whether the source is still the one, and as new, as when the state was made.

A source that is restored from an older backup, or replaced by a copy, is behind its state: a read from the
state yields nothing until the source has overtaken it, and what it stores until then is never read. No later
state shows this, because a read never moves a bookmark back. So it is checked before a read, where a stream
says what is comparable:

- the identity of the source, such as the system identifier and the timeline of a database: it is part of the
  state, and must not change;
- the position up to which its log goes now: a log only grows, so it is never before a bookmark. The greatest
  value of a column is not such a position: the row that has it may be deleted.

Test: `tests/connectors/test_origin.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connectors.sdk.state.bookmark import PARTITIONS, read_saved_value
from connectors.sdk.state.replication_key import ReplicationKey
from elt_assets.errors import ConfigError

SOURCE_IDENTITY = "source_identity"
"""Property of a state: the identity of the source that it is of."""
_GUIDANCE = (
    "if the source was restored from a backup or replaced, read its streams from the beginning: sync them "
    "with `refresh`, or reset them with `elt state reset`"
)


def check_origin(
    key: ReplicationKey, saved: Mapping[str, Any], identity: str | None, position: Any
) -> None:
    """Check that a state is of this source, and not ahead of it.

    Args:
        identity: of the source; None if the stream does not know it. A state without one is accepted.
        position: the value of the replication key up to which the source's log goes; None if unknown.

    Raises:
        ConfigError: says what differs, and how to go on.
    """
    before = saved.get(SOURCE_IDENTITY)
    if None not in (before, identity) and before != identity:
        raise ConfigError(
            f"the state is of the source {before!r}, and this source is {identity!r}: it is not known which "
            "of its records were read",
            guidance=_GUIDANCE,
        )
    for entry in (saved, *(saved.get(PARTITIONS) or [])):
        bookmark = read_saved_value(key, entry)
        if key.is_before(position, bookmark):
            raise ConfigError(
                f"the state is at {bookmark!r}, and the log of the source ends at {position!r}: the source "
                "is older than its state",
                guidance=_GUIDANCE,
            )
