"""The check of a connection: the first page of some streams is read.

Spec: CheckStream, CheckDynamicStream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from connectors.declarative.manifest import components
from connectors.declarative.stream import ManifestStream
from elt_assets.errors import ConfigError, EltError

_MAX_NAMES = 10
"""Number of streams that a warning names."""


def check_streams(
    source: components.DeclarativeSource,
    streams: Sequence[ManifestStream],
    refusal: Callable[[str], EltError | None],
) -> None:
    """Check that the streams which a manifest names can be read.

    Args:
        source: the component of the manifest.
        streams: all its streams that can be read.
        refusal: returns why a stream of a name cannot be read; None if there is no such stream.

    Raises:
        ConfigError: the manifest has no such stream, or no streams at all.
        EltError: a stream cannot be read.
    """
    component = source.check
    if isinstance(component, components.CheckDynamicStream):
        _require_streams(component, streams)
        checked_streams = (
            streams[: component.stream_count] if component.use_check_availability else ()
        )
    else:
        checked_streams = [
            *_find_named(component, streams, refusal),
            *_find_dynamic(component, source, streams),
        ]
    for stream in checked_streams:
        stream.check()


def overlap_advice(streams: Sequence[ManifestStream]) -> Iterator[str]:
    """Yield a warning if late records of some streams may be missed."""
    names = [stream.name for stream in streams if _lacks_overlap(stream)]
    if not names:
        return
    listed_names = ", ".join(map(repr, names[:_MAX_NAMES]))
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    yield (
        f"streams {listed_names}{more}: each read asks for records up to the present time, and the next one "
        "begins there; a record that the API shows only later, with an earlier cursor value, is not read. If "
        "the API may do so, set `lookback_window` of the DatetimeBasedCursor to the longest delay, such as "
        "PT1H"
    )


def _lacks_overlap(stream: ManifestStream) -> bool:
    try:
        return stream.lacks_overlap()
    except (
        ConfigError
    ):  # the check is about other streams; the error is shown when this one is read
        return False


def _find_named(
    component: components.CheckStream,
    streams: Sequence[ManifestStream],
    refusal: Callable[[str], EltError | None],
) -> Iterator[ManifestStream]:
    streams_by_name = {stream.name: stream for stream in streams}
    for name in component.stream_names or ():
        if name not in streams_by_name:
            raise refusal(name) or ConfigError(
                f"{component.place}: the manifest has no stream {name!r}",
                guidance=f"name one of these: {', '.join(map(repr, streams_by_name))}",
            )
        yield streams_by_name[name]


def _find_dynamic(
    component: components.CheckStream,
    source: components.DeclarativeSource,
    streams: Sequence[ManifestStream],
) -> Iterator[ManifestStream]:
    """Yield the streams that are made of templates and are to be checked."""
    places = {dynamic.name: f"{dynamic.place}." for dynamic in source.dynamic_streams}
    for check_config in component.dynamic_streams_check_configs or ():
        place = places.get(check_config.dynamic_stream_name)
        if place is None:
            raise ConfigError(
                f"{check_config.place}: the manifest has no dynamic stream "
                f"{check_config.dynamic_stream_name!r}",
                guidance=f"name one of these: {', '.join(map(repr, places)) or 'there is none'}",
            )
        made_streams = [stream for stream in streams if stream.place.startswith(place)]
        _require_streams(check_config, made_streams)
        yield from made_streams[: check_config.stream_count]


def _require_streams(component: Any, streams: Sequence[ManifestStream]) -> None:
    if not streams:
        raise ConfigError(
            f"{component.place}: there are no streams to check",
            guidance="check the config: it, or what the API lists for it, defines the streams",
        )
