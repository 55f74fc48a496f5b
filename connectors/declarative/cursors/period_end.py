"""Detection of requests that carry the end of a period, so that an API returns nothing after it.

A state may be the end of a period only if the API was asked for the time until that end. Otherwise the state
is the value of the last record: a record with an earlier value may become visible later.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from connectors.declarative.manifest import components
from connectors.declarative.manifest.template import Template, TemplateMap

END_NAME = "end_time"
"""Default name of the end of an interval."""
_SLICE = re.compile(r"\bstream_(?:interval|slice|partition)\b")
_NOT_SENT = frozenset({"record_selector", "partition_router", "decoder", "parameters", "place"})
"""Fields of a retriever whose templates are not parts of requests for its records."""


def sends_end(cursor: components.DatetimeBasedCursor, retriever: Any) -> bool:
    """Return whether requests carry the end of the interval: as `end_time_option`, or in a template."""
    if cursor.end_time_option is not None:
        return True
    end = cursor.partition_field_end
    name = re.compile(rf"\b{re.escape(end.text if end else END_NAME)}\b")
    return any(_SLICE.search(text) and name.search(text) for text in _texts(retriever))


def _texts(content: Any) -> Iterator[str]:
    """Yield the texts of a component, at any depth."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, Template):
        yield content.text
    elif isinstance(content, TemplateMap | Mapping):
        for key, value in content.items():
            yield from _texts(key)
            yield from _texts(value)
    elif isinstance(content, list | tuple):
        for value in content:
            yield from _texts(value)
    elif isinstance(content, components.Component):
        for name in content.__struct_fields__:
            if name not in _NOT_SENT:
                yield from _texts(getattr(content, name))
