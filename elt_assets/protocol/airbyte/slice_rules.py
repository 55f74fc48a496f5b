"""The rules about SLICE messages, and about BARRIER messages, which wait for slices to be read.

They are the answer to a request: only of a stream whose slices were requested (`SLICES` in the configured
catalog), and until the stream ends. Any other one is an error, because tasks run the code of the source for
it, outside of the connector's process. What a slice says is data: it names no code, no path and no host.
"""

from __future__ import annotations

from elt_assets.errors import SystemFailure
from elt_assets.protocol.airbyte.messages import Message, Slice

MAX_KEY = 1_000
"""Maximum number of characters of the key of a slice."""
MAX_DATA = 4 << 20
"""Maximum bytes of the data of a slice."""
_DEFECT = (
    "this is a defect of the connector, or an attack by it: report it to its maintainer; if you do not trust "
    "the connector, remove its connection, and replace the secrets that it got"
)


def refuse_slice(part: Slice, reason: str, sender: str = "the connector") -> SystemFailure:
    """Return the error for a SLICE message that is no answer to a request."""
    stream = str(part.stream_descriptor.id)[:MAX_KEY]
    return SystemFailure(
        f"{sender} sent a slice of stream {stream!r}, {reason}; nothing was read for it",
        guidance=_DEFECT,
    )


def refuse_barrier(sender: str = "the connector") -> SystemFailure:
    """Return the error for a BARRIER message that is no answer to a request."""
    return SystemFailure(
        f"{sender} waits for slices to be read, but was not asked for slices", guidance=_DEFECT
    )


def refuse_unasked(message: Message, sender: str) -> None:
    """Refuse a message about slices of a process that was not asked for slices.

    Raises:
        SystemFailure: the message is one.
    """
    if message.slice is not None:
        raise refuse_slice(message.slice, "which was not asked for slices", sender)
    if message.barrier is not None:
        raise refuse_barrier(sender)


def check_limits(part: Slice) -> None:
    """Check the sizes of a slice.

    Raises:
        SystemFailure: one is beyond its limit.
    """
    if len(part.key) > MAX_KEY:
        raise refuse_slice(part, f"whose key has more than {MAX_KEY:,} characters")
    if len(part.data) > MAX_DATA:
        raise refuse_slice(part, f"whose data has more than {MAX_DATA:,} bytes")
    if not bytes(part.data).startswith(b"{"):
        raise refuse_slice(part, "whose data is no object")
    if part.row_estimate is not None and not 0 <= part.row_estimate < float("inf"):
        raise refuse_slice(part, "whose estimate is no number of rows")
