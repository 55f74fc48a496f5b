"""Fields that the catalog does not declare (`on_undeclared`): what a sync asks its source for, and `stop`.

Used by `connection_read`. `lake.write` counts, keeps and adds the fields; `progress` describes the counts.

With `stop`, the sync ends before the first record that has a value of such a field. The check is a part of
the filter of records, which the session applies when it stages a record: what came before it is committed up
to the last state, as if the source had failed there, and the next sync reads from that state. So nothing is
lost, whatever the user does about the field. A log of changes is committed by windows of transactions: its
source is told to end one before the transaction that shows a value.
`tests/orchestration/test_added_columns.py::test_a_sync_stops_before_the_record_and_goes_on`
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable

import msgspec
from msgspec import Raw

from elt_assets.errors import ConfigError
from elt_assets.lake.columns import from_json_schema
from elt_assets.lake.columns.added import declare_columns, join_fields, list_missing
from elt_assets.lake.worker.job import Extra, count_names, find_unknown
from elt_assets.lake.write.parsing import collect_names
from elt_assets.lake.write.sync_columns import stream_part
from elt_assets.pipeline.stream_plan import StreamPlan
from elt_assets.protocol.catalog import ConfiguredStream
from elt_assets.protocol.messages import STOPS_AT_UNDECLARED, UNDECLARED_COLUMNS
from elt_assets.sync.field_selection import properties

_STOP = "stop"
_SENDS_ALL = ("keep", "add", _STOP)
_OBJECT = ord("{")


def request_fields(stream: ConfiguredStream, plan: StreamPlan) -> ConfiguredStream:
    """Return a stream as it is requested from its source, with the fields that were added to its table."""
    catalog = properties(plan.asset.stream.stream.json_schema)
    missing = list_missing(stream_part(plan.tables.main.schema), catalog)
    requested = copy.copy(stream)
    if missing:
        schema = stream.stream.json_schema
        fields = join_fields(schema.get("properties") or {}, missing)
        requested.stream = copy.copy(stream.stream)
        requested.stream.json_schema = {**schema, "properties": fields}
    if plan.asset.settings.on_undeclared in _SENDS_ALL and not _includes_only(plan):
        left_out = sorted(catalog.keys() - properties(stream.stream.json_schema).keys())
        requested.extra = {**stream.extra, UNDECLARED_COLUMNS: Raw(msgspec.json.encode(left_out))}
        if plan.asset.settings.on_undeclared == _STOP:
            requested.extra[STOPS_AT_UNDECLARED] = Raw(b"true")
    return requested


def _includes_only(plan: StreamPlan) -> bool:
    fields = plan.asset.settings.fields
    return fields is not None and fields.include is not None


def make_check(plan: StreamPlan) -> Callable[[Raw], None] | None:
    """Return the function that refuses a record with an undeclared field; None unless the stream stops there.

    It raises a ConfigError that names the fields, and no values. A correction has delete markers, which the
    catalog need not declare.
    """
    if plan.asset.settings.on_undeclared != _STOP or plan.corrects:
        return None
    own = stream_part(plan.tables.main.schema)
    schema = plan.asset.make_stored_stream().stream.json_schema
    declared = collect_names(declare_columns(schema, own, from_json_schema.read_names(own)))

    def check(data: Raw) -> None:
        if memoryview(data)[0] != _OBJECT:
            return
        try:
            extra = find_unknown(data, declared)
        except (msgspec.MsgspecError, RecursionError):
            return  # the record is rejected
        with_values = None if extra is None else _drop_nulls(extra)
        if with_values is not None:
            raise _describe(plan, with_values)

    return check


def _drop_nulls(extra: Extra) -> Extra | None:
    """Return the undeclared fields that have a value: a source may send nulls of a column in rows from before
    it had the column."""
    if isinstance(extra, dict):
        values = {name: _drop_nulls(value) for name, value in extra.items()}
        return {name: value for name, value in values.items() if value is not None} or None
    if isinstance(extra, list):
        items = [None if item is None else _drop_nulls(item) for item in extra]
        return items if any(item is not None for item in items) else None
    return None if bytes(extra) == b"null" else extra


def _describe(plan: StreamPlan, extra: Extra) -> ConfigError:
    names = Counter[str]()
    count_names(names, extra)
    connection, stream = plan.asset.connection.name, str(plan.id)
    return ConfigError(
        f"stream {stream!r}: a record has fields that the catalog does not declare: "
        f"{', '.join(sorted(names))}; the sync has stopped before it (`on_undeclared: stop`)",
        guidance=f"run `elt discover {connection}`, or `elt discover {connection} --sample 1000` if the "
        "source does not describe them, and sync again; or set `on_undeclared` to `ignore`, `warn`, `keep` "
        "or `add`. The next sync goes on from the last state before the record",
    )
