"""Partitions that a source lists itself: their keys for Dagster, and their contexts for a read.

For `sensors`, which add the keys, `planning` and `step`, which find the contexts, and `elt partitions`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Generator, Mapping
from dataclasses import dataclass, field

import msgspec
from msgspec import Raw

from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.pipeline.stream import ConnectionStream
from elt_assets.protocol.catalog import ConfiguredCatalog
from elt_assets.protocol.messages import Partition
from elt_assets.runner.connector import Connector


class MissingPartition(ConfigError):
    """A partition that its source does not list. The other partitions of a run can still be read."""


@dataclass(frozen=True)
class PartitionContexts:
    """The contexts of partitions of a stream."""

    stream: ConnectionStream
    # The contexts by partition key; a key without a partition in the source is missing.
    by_key: Mapping[str, Raw] = field(default_factory=dict)

    def get(self, key: str) -> Raw:
        """Return the context of a partition.

        Raises:
            MissingPartition: the source does not list this partition.
        """
        try:
            return self.by_key[key]
        except KeyError:
            raise MissingPartition(
                f"the source does not list the partition {key!r} of stream {str(self.stream.stream.id)!r}",
                guidance="if the source no longer has it, delete the partition in Dagster; its rows stay in "
                "the table. `elt partitions CONNECTION STREAM` lists the partitions that the source has",
            ) from None


def find_contexts(
    connector: Connector, stream: ConnectionStream, keys: Collection[str]
) -> PartitionContexts:
    """Return the contexts of some partitions of a stream. The list ends when all of them are found.

    Raises:
        EltError: as `Connector.partitions`.
    """
    contexts: dict[str, Raw] = {}
    missing = set(keys)
    with contextlib.closing(_list_partitions(connector, stream)) as partitions:
        for partition in partitions:
            if partition.key in missing:
                contexts[partition.key] = partition.context
                missing.remove(partition.key)
            if not missing:
                break
    return PartitionContexts(stream, contexts)


def list_contexts(
    connector: Connector, stream: ConnectionStream, *, seconds: float | None = None
) -> PartitionContexts:
    """Return the contexts of all partitions of a stream, in the order of the source.

    Args:
        seconds: as for `Connector.partitions`.

    Raises:
        SystemFailure: the source gives two partitions the same key.
        EltError: as `Connector.partitions`.
    """
    contexts: dict[str, Raw] = {}
    with contextlib.closing(_list_partitions(connector, stream, seconds)) as partitions:
        for partition in partitions:
            earlier = contexts.setdefault(partition.key, partition.context)
            if msgspec.json.decode(earlier) != msgspec.json.decode(partition.context):
                raise SystemFailure(
                    f"the source lists two partitions of stream {str(stream.stream.id)!r} with the key "
                    f"{partition.key!r}",
                    guidance="report it to the maintainer of the connector: a key must name one partition",
                )
    return PartitionContexts(stream, contexts)


def _list_partitions(
    connector: Connector, stream: ConnectionStream, seconds: float | None = None
) -> Generator[Partition, None, None]:
    """Yield the partitions of a stream; those of other streams are ignored."""
    catalog = ConfiguredCatalog(streams=[stream.make_requested_stream()])
    with contextlib.closing(connector.partitions(catalog, seconds=seconds)) as partitions:
        for partition in partitions:
            if partition.stream_descriptor.id == stream.stream.id:
                yield partition
