"""Check for new data in a source, for `sensors`: with `probe`, or with the start of a read.

`probe` is a command of this project's connectors.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any

import dagster as dg

from elt_assets.connection import Connection
from elt_assets.connection.partitions import moment
from elt_assets.errors import EltError
from elt_assets.machine_faults import translated
from elt_assets.orchestration.failures import one_line
from elt_assets.orchestration.resources import LakeResource
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.pipeline.connectors import make_source
from elt_assets.pipeline.stream_plan import source_state
from elt_assets.protocol.catalog import INCREMENTAL, ConfiguredCatalog, ConfiguredStream, StreamId
from elt_assets.protocol.messages import RawRecord, State
from elt_assets.protocol.wire import loads
from elt_assets.runner.kinds import KINDS

TIMEOUT = 25.0
"""Seconds that a check may take; stopping the connector may take a few more."""
_MIN_SECONDS = 1.0
"""Minimum time for a read; a read that has less time left is not started."""
_READS = 4
"""Maximum number of reads at the same time."""

Answers = Mapping[StreamId, "bool | EltError | None"]
"""The answer for each stream: whether it has new data; None, or the error, if this is unknown."""


@dataclass(frozen=True)
class NewDataResult:
    """Result of a check."""

    new_data: list[dg.AssetKey]  # the streams with new data
    skip_reason: str  # applies if there are none
    # Why the source could not be probed, if its streams were read instead, which costs it more.
    probe_error: EltError | None = None


def can_check(asset: StreamAsset) -> bool:
    """Return whether the stream can be checked: it is incremental and has no partitions."""
    return asset.stream.sync_mode == INCREMENTAL and asset.settings.partitions is None


def find_new_data(
    connection: Connection, assets: Sequence[StreamAsset], lake: LakeResource
) -> NewDataResult:
    """Check the source for data after the state of each stream's table. Nothing is stored.

    Raises:
        EltError: the source cannot be probed, or does not answer in time.
    """
    end = time.monotonic() + TIMEOUT
    states = {
        asset.stream.id: asset.join_metadata(
            asset.tables(lake.location).metadata
        ).find_starting_state()  # as the next sync
        for asset in assets
    }
    answers: dict[StreamId, bool | EltError | None] = {}
    probe_error: EltError | None = None
    reads = connection.new_data is not None and connection.new_data.read
    if KINDS[connection.source.kind].reports_new_data:
        try:
            answers.update(_probe(connection, assets, states, lake))
        except EltError as error:
            if not reads:
                raise
            probe_error = error
    if reads:
        unknown = [asset for asset in assets if answers.get(asset.stream.id) is None]
        answers.update(_read_starts(unknown, states, lake, end))
    return NewDataResult(
        new_data=[asset.key for asset in assets if answers.get(asset.stream.id) is True],
        skip_reason=_skip_reason(assets, answers),
        probe_error=probe_error,
    )


def _probe(
    connection: Connection,
    assets: Sequence[StreamAsset],
    states: Mapping[StreamId, str | None],
    lake: LakeResource,
) -> Answers:
    answer = make_source(connection, lake.staging_path).probe(
        ConfiguredCatalog(streams=[asset.make_requested_stream() for asset in assets]),
        [State.from_json(state) for state in states.values() if state is not None],
        seconds=TIMEOUT,
    )
    return {probe.stream_descriptor.id: probe.has_news for probe in answer.streams}


def _read_starts(
    assets: Sequence[StreamAsset],
    states: Mapping[StreamId, str | None],
    lake: LakeResource,
    end: float,
) -> Answers:
    """Read the start of each stream, some at the same time, until `end` (by `time.monotonic`).

    The order is random, so that a stream that is not reached at one check is reached at another.
    """
    chosen = random.sample(assets, len(assets))
    check = partial(_read_start, states=states, lake=lake, end=end)
    with ThreadPoolExecutor(_READS) as pool:
        return dict(
            zip((asset.stream.id for asset in chosen), pool.map(check, chosen), strict=True)
        )


def _read_start(
    asset: StreamAsset, states: Mapping[StreamId, str | None], lake: LakeResource, end: float
) -> bool | EltError | None:
    """Read a stream until its first new record, and then end the source. Nothing is stored."""
    seconds = end - time.monotonic()
    if seconds < _MIN_SECONDS:
        return None
    state, stream = states[asset.stream.id], asset.make_sampled_stream()
    stream.generation_id, stream.minimum_generation_id = 1, 0
    stream.sync_id = int(time.time() * 1000)
    catalog = ConfiguredCatalog(streams=[stream])
    state_messages = [] if state is None else [State.from_json(state)]
    connector = make_source(asset.connection, lake.staging_path)
    try:
        with (
            translated(),
            connector.read_within(seconds),
            connector.stage_documents(),  # a source may send some that it is not asked for
            contextlib.closing(connector.read(catalog, state_messages, withhold=True)) as messages,
        ):
            for message in messages:
                if isinstance(message, RawRecord) and is_new(message, asset.stream, state):
                    return True
    except EltError as error:
        return error
    return False


def _skip_reason(assets: Sequence[StreamAsset], answers: Answers) -> str:
    """Return why no stream is known to have new data."""
    answers_by_asset = {
        asset.key.to_user_string(): answers.get(asset.stream.id) for asset in assets
    }
    failed = [
        f"{key}: {one_line(answer)}"
        for key, answer in answers_by_asset.items()
        if isinstance(answer, EltError)
    ]
    if failed:
        return f"the source could not be checked for new data: {'; '.join(failed)}"
    unknown = [key for key, answer in answers_by_asset.items() if answer is None]
    if unknown:
        return f"the source cannot report new data of {', '.join(unknown)}"
    return "there is no new data"


def is_new(record: RawRecord, stream: ConfiguredStream, state: str | None) -> bool:
    """Return whether a record of a read from `state` is new.

    Many sources read from the bookmark on, the bookmark included, so they send the last record again. A
    record is not new if the state contains the value of its cursor. Every record is new if there is no state
    or no cursor.
    """
    if record.stream != stream.id.name or record.namespace not in (None, stream.id.namespace):
        return False
    if state is None or not stream.cursor:
        return True
    cursor_value: Any = loads(record.data)
    for name in stream.cursor:
        cursor_value = cursor_value.get(name) if isinstance(cursor_value, dict) else None
    if cursor_value is None:
        return True
    value = _comparable(cursor_value)
    return all(
        _comparable(cursor) != value
        for cursor in _values(json.loads(source_state(state) or "null"))
    )


def _values(state: Any) -> Iterator[Any]:
    """Yield the texts and numbers in a JSON value, at any depth."""
    if isinstance(state, dict | list):
        for part in state.values() if isinstance(state, dict) else state:
            yield from _values(part)
    elif state is not None:
        yield state


def _comparable(value: Any) -> Any:
    """Return a value in one form for all its notations: numbers as text, times with or without a zone."""
    if not isinstance(value, str | int | float):
        return value
    with contextlib.suppress(InvalidOperation):
        number = Decimal(str(value))
        if number.is_finite():
            return number
    if not isinstance(value, str):
        return value
    try:
        instant = moment(value)
    except ValueError:
        return value
    return instant if instant.tzinfo else instant.replace(tzinfo=dt.timezone.utc)
