"""Query properties: the fields that a request asks for, in several requests if they are many.

Spec: QueryProperties, PropertyChunking, PropertiesFromEndpoint, GroupByKeyMergeStrategy.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

from connectors.declarative.manifest import components
from connectors.declarative.requests.records.transformations import transformation
from connectors.sdk.items import Record

Fetch = Callable[[], Sequence[str]]
"""Returns the names of the properties of an API."""
Selected = Callable[[], Mapping[str, Any] | None]
"""Returns the properties of a stream that the catalog selects; None for all."""

_DELIMITER_CHARACTERS = 3
"""Number of characters that the delimiter after a property takes in a URL."""


class Properties:
    """The properties of a stream.

    Args:
        component: a QueryProperties.
        fetch: returns the names that the API has; None if the manifest names them.
        selected: returns the properties that the catalog selects.
        config: the config of the source.
    """

    def __init__(
        self,
        component: components.QueryProperties,
        fetch: Fetch | None,
        selected: Selected,
        config: Mapping[str, Any],
    ):
        self._component = component
        self._fetch = fetch
        self._selected = selected
        self._config = config
        self._lock = threading.Lock()
        self._names: Sequence[str] | None = None
        selector = component.property_selector
        self._changes = [
            transformation(part) for part in (selector and selector.transformations) or ()
        ]

    @property
    def merges(self) -> bool:
        """Return whether the records of several requests for a page are merged."""
        return self._component.property_chunking is not None

    def chunks(self) -> Iterator[list[str]]:
        """Yield the names for each request of a page."""
        always = list(self._component.always_include_properties or ())
        names = self._wanted()
        chunking = self._component.property_chunking
        if chunking is None:
            yield [*always, *names]
        elif not chunking.property_limit:
            yield [*names, *always]
        else:
            yield from self._limited(names, always, chunking.property_limit)

    def key(self, record: Record) -> Hashable | None:
        """Return what identifies a record in all requests for a page; None if it cannot be merged."""
        chunking = self._component.property_chunking
        strategy = chunking.record_merge_strategy if chunking else None
        names_of_key = strategy.key if strategy else "id"
        names = (names_of_key,) if isinstance(names_of_key, str) else names_of_key
        values = tuple(record.get(name) for name in names)
        if any(value in (None, "", [], {}) for value in values):
            return None
        return values

    def _limited(self, names: Sequence[str], always: list[str], limit: int) -> Iterator[list[str]]:
        chunking = self._component.property_chunking
        counts_characters = chunking is not None and chunking.property_limit_type == "characters"
        chunk, size = list(always), 0
        for name in names:
            more = len(name) + _DELIMITER_CHARACTERS if counts_characters else 1
            if size + more > limit and size:
                yield chunk
                chunk, size = list(always), 0
            chunk.append(name)
            size += more
        yield chunk

    def _wanted(self) -> list[str]:
        names = self._all()
        if self._component.property_selector is None:
            return list(names)
        properties = self._selected()
        if properties is None:
            return list(names)
        changed = [dict(properties)]
        for change in self._changes:
            change(changed, {"config": self._config})
        return [name for name in names if name in changed[0]]

    def _all(self) -> Sequence[str]:
        if self._fetch is None:
            properties = self._component.property_list
            return properties if isinstance(properties, tuple) else ()
        with self._lock:
            if self._names is None:
                self._names = self._fetch()
            return self._names


def merge(record: Record, more: Record) -> None:
    """Add the fields of a record to another one; objects are merged, and other fields replaced."""
    for name, value in more.items():
        present = record.get(name)
        if isinstance(present, dict) and isinstance(value, dict):
            merge(present, value)
        else:
            record[name] = value
