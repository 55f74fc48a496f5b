"""The partitions that a configured stream names, which are read alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from connectors.sdk.declared_stream import DeclaredStream
from connectors.sdk.items import Context
from connectors.sdk.state.partitions import identity
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import ConfiguredStream


def find_named_partitions(configured: ConfiguredStream) -> list[Context] | None:
    """Return the partitions that the configured stream names, which are to be read alone; None for all.

    Raises:
        ConfigError: what it names is not a list of contexts.
    """
    partitions = configured.extra.get("partitions")
    try:
        return msgspec.json.decode(partitions or b"null", type=list[Context] | None)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"`partitions` of stream {str(configured.id)!r} is not a list of contexts: {error}",
            guidance='write a list of objects, as in [{"store": 1}]',
        ) from error


def list_separate(stream: DeclaredStream) -> Iterable[Context]:
    """Return the contexts of the partitions that can be read alone.

    Raises:
        ConfigError: no partition can be read alone.
    """
    contexts = stream.partitions()
    if contexts is None or stream.state_partitioning_keys is not None:
        why = "it has none" if contexts is None else "several of them share a bookmark"
        raise ConfigError(
            f"single partitions of stream {str(stream.id)!r} cannot be read: {why}",
            guidance="read the stream as a whole: leave out `partitions`",
        )
    return contexts


def select_partitions(stream: DeclaredStream, named: list[Context]) -> Iterable[Context]:
    """Return the partitions that the configured stream names. If the stream needs values of the parent that
    the contexts do not have, the parent is read for them.

    Raises:
        ConfigError: partitions are named that cannot be read alone, or that the stream does not have.
    """
    contexts = list_separate(stream)
    parent = stream.parent
    has_values = parent is None or stream.parent_fields() <= parent.partition_names().keys()
    return named if has_values else _select(contexts, named)


def _select(contexts: Iterable[Context], named: list[Context]) -> Iterator[Context]:
    missing = {identity(context): context for context in named}
    for context in contexts:
        if missing.pop(identity(context), None) is not None:
            yield context
        if not missing:
            return
    raise ConfigError(
        f"the stream has no partition {next(iter(missing.values()))!r}",
        guidance="run `partitions` to see its partitions",
    )
