"""The partitions of a stream: how their contexts are compared, and the keys by which the command `partitions`
lists them.

Spec: SDK Implementation Details - Stream State, "Partitioned State".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from connectors.sdk.encoding import encode
from connectors.sdk.items import Context

_encode_sorted = msgspec.json.Encoder(decimal_format="number", order="sorted").encode
_RESERVED = (",", "=", '"', "|", "...")
"""Parts of a text that have a meaning in the name of a partition, here or in Dagster."""


def identity(context: Context | None) -> bytes:
    """Return a context as sorted JSON, as it is read from a state: equal contexts have equal bytes."""
    return _encode_sorted(msgspec.json.decode(encode(context)))


def distinct(contexts: Iterable[Context]) -> Iterator[Context]:
    """Yield each context once: a parent stream may have several versions of a record."""
    seen: set[bytes] = set()
    for context in contexts:
        if (key := identity(context)) not in seen:
            seen.add(key)
            yield context.copy()


def partition_name(context: Context) -> str:
    """Return the name of a partition, unique in its stream: `1` for `{"store": 1}`, and `post=1,user="2"` for
    a context of several values. A text is in quotes where it could be taken for something else.
    """
    if len(context) == 1:
        return "".join(map(_encode_key, context.values()))
    return ",".join(f"{_encode_key(name)}={_encode_key(context[name])}" for name in sorted(context))


def _encode_key(value: Any) -> str:
    if isinstance(value, str) and _is_plain(value):
        return value
    text = _encode_sorted(value).decode()
    return text.replace("...", "\\u002e\\u002e\\u002e").replace("|", "\\u007c")


def _is_plain(text: str) -> bool:
    """Return whether a text is its own name: it is printable, and neither JSON nor part of a list."""
    if not text.isprintable() or text != text.strip() or any(part in text for part in _RESERVED):
        return False
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return bool(text)
    return False
