"""The state of a tap: the bookmarks of its streams in one object.

Spec: Singer, state file; SDK Implementation Details - Stream State, "Standard State Format".
"""

from __future__ import annotations

from typing import Any

from msgspec import Raw

from connectors.sdk.encoding import encode
from connectors.sdk.groups import GroupState
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import decode_json, read_file

BOOKMARKS = "bookmarks"
SHARED = "shared"
"""The field of what streams of a group share."""
LARGE = 1 << 18
"""A state of this size in bytes is not sent each time that a bookmark moves: it has all streams."""
BUDGET = 2
"""The states sent so far have at most this many times the size of the present one, if it is large."""


def load_state_file(path: str | None) -> dict[str, Any]:
    """Return the content of the state file; empty without a file.

    Raises:
        ConfigError: the file is not readable, or does not contain an object.
    """
    if path is None:
        return {}
    return decode_json(read_file(path, "state"), dict[str, Any], "state")


class TapState:
    """The bookmarks of all streams, and when they are sent.

    Args:
        saved: the state after the last run, in the standard format.

    Raises:
        ConfigError: the state is not of the standard format.
    """

    def __init__(self, saved: dict[str, Any]):
        self.saved = decode_json(
            encode(saved.get(BOOKMARKS) or {}), dict[str, dict[str, Any]], "state"
        )
        self._bookmarks = {name: encode(value) for name, value in self.saved.items()}
        shared = saved.get(SHARED)
        self.saved_shared = decode_json(encode(shared), dict[str, Any], "state") if shared else None
        self._shared = self.saved_shared
        self._total = 0
        self._is_pending = False

    @property
    def is_pending(self) -> bool:
        """Return whether a bookmark has moved since the last value."""
        return self._is_pending

    def move(self, stream: str, bookmark: dict[str, Any] | Raw) -> None:
        """Set the bookmark of a stream."""
        self._bookmarks[stream] = bytes(bookmark) if isinstance(bookmark, Raw) else encode(bookmark)
        self._is_pending = True

    def move_group(self, state: GroupState) -> None:
        """Set the bookmarks of the streams of a group, and what they share."""
        for stream, bookmark in state.streams.items():
            self.move(stream.name, dict(bookmark))
        self._shared = dict(state.shared)
        self._is_pending = True

    @property
    def is_due(self) -> bool:
        """Return whether to send the value now; a state of many bookmarks is sent less often."""
        size = sum(map(len, self._bookmarks.values()))
        return size < LARGE or self._total <= BUDGET * size

    def value(self) -> bytes:
        """Return the value of the next STATE message."""
        inner = b",".join(b"%b:%b" % (encode(name), mark) for name, mark in self._bookmarks.items())
        shared = (
            b"" if self._shared is None else b',"%b":%b' % (SHARED.encode(), encode(self._shared))
        )
        document = b'{"%b":{%b}%b}' % (BOOKMARKS.encode(), inner, shared)
        self._total += len(document)
        self._is_pending = False
        return document


def require_standard_format(state: dict[str, Any]) -> None:
    """Check that a state has bookmarks, if it has anything.

    Raises:
        ConfigError: it is of another form.
    """
    if state and not isinstance(state.get(BOOKMARKS), dict):
        raise ConfigError(
            "the state has no `bookmarks`: it is of another tap, or of a version that this one does not know",
            guidance="give the state that this tap has sent; without a state, it reads from the beginning",
        )
