"""The base class of partition routers, and the router over a list of values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Raw

from connectors.declarative.cursors.cursor import State
from connectors.declarative.cursors.settings import Settings
from connectors.declarative.cursors.slices import Injection, Option, injection, options_of
from connectors.declarative.manifest import components
from connectors.declarative.manifest.template import Template
from connectors.sdk.items import Context
from elt_assets.errors import ConfigError

PARENT_SLICE = "parent_slice"
"""Name of the value of a partition that is the parent record's own partition."""


@dataclass(frozen=True)
class Partition:
    """One partition: the values that identify it, and values that come with it."""

    values: Mapping[str, Any]
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def context(self) -> Context:
        """The context by which the partition is listed and read alone."""
        return {name: value for name, value in self.values.items() if name != PARENT_SLICE or value}


Action = Callable[[], None]
"""Function to call when all partitions before it were read: it moves the state of a parent stream."""


class Routing(ABC):
    """The partitions of one read.

    Attributes:
        warnings: what the user should know about the parent streams, one line each.
    """

    def __init__(self) -> None:
        self.warnings: list[str] = []

    @abstractmethod
    def items(self) -> Iterator[Partition | Action]:
        """Yield the partitions, with actions between them. A partition may come more than once.

        Raises:
            EltError: a parent stream cannot be read.
        """

    def parent_state(self) -> dict[str, Raw]:
        """Return the states of the parent streams by name, as far as the actions were called."""
        return {}


class Router(ABC):
    """The partitions of a stream, as its manifest describes them.

    Attributes:
        place: the place of the router in the manifest.
        names: the names of the values of a partition, without `PARENT_SLICE`. Each set is one kind of
            partitions.
        has_parents: whether partitions have a `PARENT_SLICE`.
        must_list: whether a partition is known only when all of them are listed.
    """

    place: str
    names: Sequence[frozenset[str]]
    has_parents = False
    must_list = False

    @abstractmethod
    def begin(self, state: State | None) -> Routing:
        """Return the partitions to read.

        Args:
            state: the state of the stream, which has the states of its parents; None to read parents
                from their start.
        """

    def options(self, partition: Mapping[str, Any]) -> Iterator[Option]:
        """Yield the values that a partition puts into requests."""
        del partition
        return iter(())

    def partition_of(self, context: Context) -> Partition:
        """Return the partition with a context, for a router that need not list them.

        Raises:
            ConfigError: the stream has no partition with these values.
        """
        if frozenset(context) - {PARENT_SLICE} not in self.names:
            expected = " or ".join(str(sorted(names)) for names in self.names)
            raise ConfigError(
                f"{context!r} is not a partition of the stream, whose partitions have {expected}",
                guidance="run `partitions` to see them",
            )
        values = {PARENT_SLICE: {}, **context} if self.has_parents else dict(context)
        return Partition(values)


class FixedRouting(Routing):
    """Partitions without parents."""

    def __init__(self, partitions: Sequence[Partition]):
        super().__init__()
        self._partitions = partitions

    def items(self) -> Iterator[Partition | Action]:
        yield from self._partitions


class ListRouter(Router):
    """The router that a ListPartitionRouter describes: a partition for each value of a list.

    Args:
        component: the component.
        config: the config of the source.

    Raises:
        ConfigError: the values are not a list. A missing or empty value of the config is an empty list.
    """

    def __init__(self, component: components.ListPartitionRouter, config: Mapping[str, Any]):
        settings = Settings(component, config)
        self.place = component.place
        self.name = settings.require("cursor_field")
        self.names = [frozenset({self.name})]
        self._injection: Injection | None = injection(component.request_option, config)
        self._values = _list_values(component, config)

    def begin(self, state: State | None) -> Routing:
        del state
        return FixedRouting([Partition({self.name: value}) for value in self._values])

    def options(self, partition: Mapping[str, Any]) -> Iterator[Option]:
        return options_of({self.name: self._injection}, partition)


def _list_values(component: components.ListPartitionRouter, config: Mapping[str, Any]) -> list[Any]:
    if not isinstance(component.values, Template):
        return list(component.values)
    values = component.values.evaluate_or(None, {"config": config})
    if values is None:
        return []
    if not isinstance(values, list | tuple):
        raise ConfigError(
            f"{component.place}.values does not give a list: {component.values.text!r}",
            guidance="write a list, or correct the value of the config that it uses",
        )
    return list(values)
