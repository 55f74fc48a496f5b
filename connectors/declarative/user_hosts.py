"""The hosts that the user of a manifest has named in the config: only they may be on private networks.

A manifest may come from anybody, and its requests start on the user's machine. A value of the config is the
user's unless the manifest or the API may have put it there:

- what the manifest's migrations and transformations add is not in the config as it was given;
- what an earlier run has changed (migrations, tokens) is left out by its place, which the runner passes on;
- a host that the specification contains, as a default or an example, is copied by forms and by `elt new`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from connectors.sdk.http.addresses import hosts_in

Place = Sequence[str | int]
"""The path to a value in a config: names of properties, and indexes of items."""


def find_user_hosts(
    config: Mapping[str, Any], changed: Sequence[Place], specification: Mapping[str, Any]
) -> frozenset[str]:
    """Return the hosts that the user has named in a config.

    Args:
        config: the config as it was given.
        changed: the places in it that the source itself has changed.
        specification: the `connectionSpecification` of the manifest.
    """
    left_out = {tuple(place) for place in changed}
    return hosts_in(_texts(config, left_out)) - hosts_in(_texts(specification))


def _texts(
    value: Any,
    left_out: set[tuple[str | int, ...]] | None = None,
    place: tuple[str | int, ...] = (),
) -> Iterator[str]:
    if left_out and place in left_out:
        return
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _texts(inner, left_out, (*place, name))
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            yield from _texts(inner, left_out, (*place, position))
