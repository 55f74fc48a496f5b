"""Slices of a stream: what one series of requests reads, and the values that it puts into the requests.

Spec: Incremental sync, "Split up interval", "Custom parameter injection".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from connectors.declarative.cursors.settings import text_of
from connectors.declarative.manifest import components
from elt_assets.errors import ConfigError

BODY_JSON = "body_json"
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
    """A value that a slice puts into each of its requests.

    Attributes:
        inject_into: `request_parameter`, `header`, `body_data` or `body_json`.
        path: the name of the field; several names for a field within others, in `body_json` only.
        value: the value.
    """

    inject_into: str
    path: tuple[str, ...]
    value: Any


class Injection:
    """A place in requests where a slice puts a value.

    Args:
        component: a RequestOption.
        config: the config of the source.

    Raises:
        ConfigError: the component does not name one field, or a path outside of `body_json`.
    """

    def __init__(self, component: components.RequestOption, config: Mapping[str, Any]):
        name, path = component.field_name, component.field_path
        if (not name) == (not path) or (path and component.inject_into != BODY_JSON):
            raise ConfigError(
                f"{component.place}: the place for the value is not clear",
                guidance="write `field_name`, or for `body_json` alternatively `field_path`",
            )
        self._inject_into = str(component.inject_into)
        self._path = tuple(text_of(part, config) for part in (path or [name]))

    def option(self, injected: Any) -> Option:
        """Return the option that puts a value there."""
        return Option(self._inject_into, self._path, injected)


def injection(
    component: components.RequestOption | None, config: Mapping[str, Any]
) -> Injection | None:
    """Return the place that a component describes; None if there is no component."""
    return None if component is None else Injection(component, config)


def options_of(
    injections: Mapping[str, Injection | None], values: Mapping[str, Any]
) -> Iterator[Option]:
    """Yield the options for values by name; none for a name without a place or without a value."""
    for name, place in injections.items():
        injected = values.get(name)
        if place is not None and injected is not None and injected != "":
            yield place.option(injected)


def distinct(options: Iterable[Option]) -> list[Option]:
    """Return the last option for each place, in the order of their first ones."""
    return list({(option.inject_into, option.path): option for option in options}.values())
