"""The router over all combinations of the partitions of several routers."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from connectors.declarative.cursors.cursor import State
from connectors.declarative.cursors.routers.router import Action, Partition, Router, Routing
from connectors.declarative.cursors.slices import Option


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
        self.must_list = any(router.must_list for router in routers)

    def begin(self, state: State | None) -> Routing:
        del state
        return _Product([router.begin(None) for router in self._routers])

    def options(self, partition: Mapping[str, Any]) -> Iterator[Option]:
        for router in reversed(self._routers):
            yield from router.options(partition)


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
