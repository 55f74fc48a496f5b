"""The options of the conformance kit."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class KitOptions:
    """What is checked of a connector, and how.

    Args:
        tap: whether it is a Singer tap; otherwise it is an Airbyte source.
        bad_configs: configs that `check` must refuse, besides those made from the specification, by a
            description such as "with an expired token".
        streams: the names of the streams to read; empty for all.
        rules: the names of the rules to check; None for all. `skip`: the names of those to leave out.
        ignore: top-level fields of records that are not compared, because they differ in each read.
        cuts: maximum number of states of a stream that a read is resumed from; None for all.
        cursors: the cursor field of streams whose cursor the user chooses, by their names; a path as
            "place.field".
        secrets: places in the config, as "credentials.password", whose values are secret, besides those that
            the specification marks.
        seconds: the time limit of each process.
        removal: the command that removes the container that the connector's command starts, whose name is
            `{container}` in both; empty for a command that starts none.
    """

    tap: bool = False
    bad_configs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    streams: Sequence[str] = ()
    rules: Collection[str] | None = None
    skip: Collection[str] = ()
    ignore: Sequence[str] = ()
    cuts: int | None = None
    cursors: Mapping[str, str] = field(default_factory=dict)
    secrets: Sequence[str] = ()
    seconds: float = 600.0
    removal: Sequence[str] = ()
