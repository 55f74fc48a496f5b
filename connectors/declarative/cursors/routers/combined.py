"""Routers made of others: all combinations of partitions, groups of partitions, and unions."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Raw

from connectors.declarative.cursors.cursor import State
from connectors.declarative.cursors.routers.router import (
    PARENT_SLICE,
    Action,
    Partition,
    Router,
    Routing,
)
from connectors.declarative.cursors.settings import Settings
from connectors.declarative.cursors.slices import Option
from connectors.declarative.manifest import components
from connectors.sdk.state.partitions import identity
from elt_assets.errors import ConfigError


class ProductRouter(Router):
    """All combinations of the partitions of several routers; the last one changes first.

    The parents of these routers are always read from their start: a partition of one router is combined with
    all partitions of the others, also with those of parents that did not change.

    Args:
        routers: the routers. Where two have the same name, or put a value in the same place of a request, the
            first one counts.
        place: the place of the list in the manifest.
    """

    def __init__(self, routers: Sequence[Router], place: str):
        self.place = place
        self._routers = routers
        kinds = itertools.product(*(router.names for router in routers))
        self.names = [frozenset().union(*kind) for kind in kinds]
        self.has_parents = any(router.has_parents for router in routers)
        self.is_grouped = any(router.is_grouped for router in routers)
        self.must_list = any(router.must_list for router in routers)

    def begin(self, state: State | None) -> Routing:
        del state
        return _Product([router.begin(None) for router in self._routers])

    def options(self, partition: Mapping[str, Any]) -> Iterator[Option]:
        for router in reversed(self._routers):
            yield from router.options(partition)

    def has_options(self) -> bool:
        return any(router.has_options() for router in self._routers)


class _Product(Routing):
    def __init__(self, parts: Sequence[Routing]):
        super().__init__()
        self._parts = parts

    def items(self) -> Iterator[Partition | Action]:
        first, *others = (_partitions(part.items()) for part in self._parts)
        rest = [list(partitions) for partitions in others]
        for outer in first:
            for inner in itertools.product(*rest):
                yield _join([outer, *inner])
        for part in self._parts:
            self.warnings.extend(part.warnings)


def _join(parts: Sequence[Partition]) -> Partition:
    values: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for part in reversed(parts):
        values.update(part.values)
        extra.update(part.extra)
    return Partition(values, extra)


def _partitions(items: Iterable[Partition | Action]) -> Iterator[Partition]:
    """Yield the partitions; the actions between them are called at once."""
    for item in items:
        if isinstance(item, Partition):
            yield item
        else:
            item()


class GroupRouter(Router):
    """The router that a GroupingPartitionRouter describes: groups of another router's partitions. Each value
    of a group is the list of the values of its partitions.

    Args:
        component: the component.
        router: the router whose partitions are grouped.

    Raises:
        ConfigError: the size is less than 1, or the router puts values into requests.
    """

    is_grouped = True
    must_list = True

    def __init__(self, component: components.GroupingPartitionRouter, router: Router):
        self.place = component.place
        self._router = router
        self._size = component.group_size
        self._is_distinct = component.deduplicate
        self.names = router.names
        self.has_parents = router.has_parents
        if self._size < 1:
            raise ConfigError(f"{self.place}.group_size is {self._size}", guidance="set 1 or more")
        _require_no_options(router, self.place)

    def begin(self, state: State | None) -> Routing:
        return _Groups(self._router.begin(state), self._size, is_distinct=self._is_distinct)


class _Groups(Routing):
    def __init__(self, routing: Routing, size: int, *, is_distinct: bool):
        super().__init__()
        self._routing = routing
        self._size = size
        self._is_distinct = is_distinct
        self.warnings = routing.warnings

    def items(self) -> Iterator[Partition | Action]:
        batch: list[Partition] = []
        actions: list[Action] = []
        seen: set[bytes] = set()
        for item in self._routing.items():
            if not isinstance(item, Partition):
                actions.append(item)
            elif not self._is_distinct or _is_new(item.values, seen):
                batch.append(item)
            if not batch or len(batch) == self._size:
                yield from self._group(batch, actions)
                batch, actions = [], []
        yield from self._group(batch, actions)

    def parent_state(self) -> dict[str, Raw]:
        return self._routing.parent_state()

    @staticmethod
    def _group(batch: list[Partition], actions: list[Action]) -> Iterator[Partition | Action]:
        if batch:
            names = dict.fromkeys(name for partition in batch for name in partition.extra)
            yield Partition(
                {
                    name: [partition.values.get(name) for partition in batch]
                    for name in batch[0].values
                },
                {name: [partition.extra.get(name) for partition in batch] for name in names},
            )
        yield from actions


class UnionRouter(Router):
    """The router that a UnionPartitionRouter describes: the partitions of several routers, each value once.

    Args:
        component: the component.
        routers: the routers.
        config: the config of the source.

    Raises:
        ConfigError: a router has no value with the name of the union, or puts values into requests.
    """

    def __init__(
        self,
        component: components.UnionPartitionRouter,
        routers: Sequence[Router],
        config: Mapping[str, Any],
    ):
        self.place = component.place
        self._name = Settings(component, config).require("partition_field")
        self._routers = routers
        self.names = [frozenset({self._name})]
        self.must_list = any(router.has_parents or router.must_list for router in routers)
        for router in routers:
            _require_no_options(router, self.place)
            if any(self._name not in names for names in router.names):
                raise ConfigError(
                    f"{router.place} has partitions without the field {self._name!r} of {self.place}",
                    guidance="give all routers of the union the same `partition_field`",
                )

    def begin(self, state: State | None) -> Routing:
        return _Union([router.begin(state) for router in self._routers], self._name)


class _Union(Routing):
    def __init__(self, parts: Sequence[Routing], name: str):
        super().__init__()
        self._parts = parts
        self._name = name

    def items(self) -> Iterator[Partition | Action]:
        seen: set[bytes] = set()
        for part in self._parts:
            for item in part.items():
                if not isinstance(item, Partition):
                    yield item
                elif _is_new({self._name: item.values[self._name]}, seen):
                    other_values = {
                        name: value for name, value in item.values.items() if name != self._name
                    }
                    yield Partition(
                        {self._name: item.values[self._name]}, {**item.extra, **other_values}
                    )
            self.warnings.extend(part.warnings)

    def parent_state(self) -> dict[str, Raw]:
        return {name: state for part in self._parts for name, state in part.parent_state().items()}


def _is_new(values: Mapping[str, Any], seen: set[bytes]) -> bool:
    """Return whether values, apart from the parent's partition, are not among those seen; add them."""
    key = identity({name: value for name, value in values.items() if name != PARENT_SLICE})
    if key in seen:
        return False
    seen.add(key)
    return True


def _require_no_options(router: Router, place: str) -> None:
    if router.has_options():
        raise ConfigError(
            f"{router.place} has a `request_option`, which has no effect within {place}",
            guidance="use `{{ stream_partition }}` in the request instead",
        )
