"""Slices of a stream: what one series of requests reads, and the values that it puts into the requests.

Spec: Incremental sync, "Split up interval", "Custom parameter injection".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from connectors.declarative.cursors.settings import text_of
from connectors.declarative.manifest import components
from connectors.sdk.http.places import Part, Place
from elt_assets.errors import ConfigError

BODY_JSON = "body_json"
_PARTS: Mapping[str, Part] = {
    "request_parameter": "params",
    "header": "headers",
    "body_data": "data",
    BODY_JSON: "json",
}
"""The parts of a request by the names that manifests give them."""
END_NAME = "end_time"
"""Default name of the end of an interval."""


@dataclass(frozen=True)
class Slice:
    """A partition, an interval of the cursor, or both; neither for a stream that is read as a whole.

    Attributes:
        partition: the values that identify the partition, by name.
        interval: the start and the end of the interval, by the names that the cursor gives them.
        extra: values that come with the partition and do not identify it.
        origin: the place of the slice in the read that it belongs to; only its cursor uses it.
    """

    partition: Mapping[str, Any] = field(default_factory=dict)
    interval: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    origin: Any = field(default=None, compare=False, repr=False)

    def variables(self) -> dict[str, Any]:
        """Return the variables of templates. All three names have the values of the partition and of the
        interval: manifests use each name for both, and the Airbyte CDK allows it."""
        values = SliceValues(self)
        return dict.fromkeys(("stream_slice", "stream_partition", "stream_interval"), values)


class SliceValues(dict[str, Any]):
    """The values of a slice for templates, with the attributes that a slice of the Airbyte CDK has."""

    def __init__(self, of: Slice):
        super().__init__(of.partition)
        self.update(of.interval)
        self._slice = of

    @property
    def partition(self) -> dict[str, Any]:
        return dict(self._slice.partition)

    @property
    def _partition(self) -> SliceValues:
        """The slice without its interval: a manifest reads its extra fields."""
        return SliceValues(Slice(self._slice.partition, extra=self._slice.extra))

    @property
    def cursor_slice(self) -> dict[str, Any]:
        return dict(self._slice.interval)

    @property
    def extra_fields(self) -> dict[str, Any]:
        return dict(self._slice.extra)


class Option(NamedTuple):
    """A value that a slice puts into each of its requests, and its place."""

    place: Place
    value: Any


def place_of(component: components.RequestOption, config: Mapping[str, Any]) -> Place:
    """Return the place in a request that a component describes.

    Raises:
        ConfigError: the component does not name one field, or a path outside of `body_json`.
    """
    name, path = component.field_name, component.field_path
    if (not name) == (not path) or (path and component.inject_into != BODY_JSON):
        raise ConfigError(
            f"{component.place}: the place for the value is not clear",
            guidance="write `field_name`, or for `body_json` alternatively `field_path`",
        )
    names = tuple(text_of(part, config) for part in path or [name])
    return Place(_PARTS[component.inject_into], names)


def place_if_any(
    component: components.RequestOption | None, config: Mapping[str, Any]
) -> Place | None:
    """Return the place that a component describes; None if there is no component."""
    return None if component is None else place_of(component, config)


def options_of(places: Mapping[str, Place | None], values: Mapping[str, Any]) -> Iterator[Option]:
    """Yield the options for values by name; none for a name without a place or without a value."""
    for name, place in places.items():
        value = values.get(name)
        if place is not None and value is not None and value != "":
            yield Option(place, value)


def distinct(options: Iterable[Option]) -> list[Option]:
    """Return the last option for each place, in the order of their first ones."""
    return list({option.place: option for option in options}.values())
