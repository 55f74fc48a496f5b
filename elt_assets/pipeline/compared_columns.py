"""What of a stream can be compared with its source: its key and columns, in the source and in the table.

`comparison` uses it. The source decides which types of columns have a text for the hash; a column of another
type in the table is left out. Hashed, excluded and structured fields have no value to compare.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elt_assets.errors import ConfigError
from elt_assets.lake.columns.logical_types import Scalar, describe_type
from elt_assets.lake.delta.table import Table
from elt_assets.lake.write.companions import StreamTables
from elt_assets.lake.write.sync_columns import column_at, columns_of
from elt_assets.pipeline.stream import ConnectionStream
from elt_assets.protocol.catalog import APPEND
from elt_assets.protocol.messages import Comparison

_KINDS: Mapping[str, frozenset[Scalar]] = {
    "int64": frozenset({Scalar.INTEGER, Scalar.BIG_INTEGER}),
    "decimal128": frozenset({Scalar.BIG_INTEGER, Scalar.BIG_NUMBER, Scalar.INTEGER}),
    "bool": frozenset({Scalar.BOOLEAN}),
    "date32": frozenset({Scalar.DATE}),
    "timestamp[us]": frozenset({Scalar.TIMESTAMP_NTZ}),
    "timestamp[us, tz=UTC]": frozenset({Scalar.TIMESTAMP}),
    "string": frozenset({Scalar.TEXT}),
    "binary": frozenset({Scalar.BINARY}),
    "double": frozenset({Scalar.NUMBER}),
    "float": frozenset({Scalar.NUMBER}),
}
"""The types of the table's columns in which the values of a type of the source are the same."""
_LOG_COLUMN = "_ab_cdc_"


@dataclass(frozen=True)
class ComparedColumns:
    """The fields of a stream that can be compared, with the names of their columns."""

    key: Mapping[str, str]
    others: Mapping[str, str]
    left_out: Mapping[str, str]  # fields, and why they are not compared

    def leave_out(self, fields: Mapping[str, str]) -> ComparedColumns:
        """Return what is compared without some fields; `fields` says why they are left out."""
        others = {name: column for name, column in self.others.items() if name not in fields}
        return ComparedColumns(self.key, others, {**self.left_out, **fields})


def find_compared_columns(
    asset: ConnectionStream, table: Table, names: Sequence[str] | None = None
) -> ComparedColumns:
    """Return what can be compared of a stream.

    Args:
        names: the fields to compare; None for all that can be.

    Raises:
        ConfigError: one of the fields does not exist, or has no value to compare; or it is the key.
    """
    declared = list(asset.stream.stream.json_schema.get("properties", {}))
    key = [path[0] for path in asset.stream.key]
    for name in names or ():
        if name not in declared:
            raise ConfigError(
                f"stream {str(asset.stream.id)!r}: columns: the source has no field {name!r}",
                guidance=f"write fields of the source: {', '.join(declared)}",
            )
    chosen = [name for name in (declared if names is None else names) if name not in key]
    columns: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for name in chosen:
        column, reason = _find_column(asset, table, name)
        if column is None:
            left_out[name] = reason
        else:
            columns[name] = column
    if names is not None and left_out:
        name, reason = next(iter(left_out.items()))
        raise ConfigError(
            f"stream {str(asset.stream.id)!r}: columns: {name!r} cannot be compared: {reason}",
            guidance="leave it out",
        )
    keys: dict[str, str] = {}
    for name in key:
        column, reason = _find_column(asset, table, name)
        if column is None:
            raise _refuse(
                asset,
                f"the part {name!r} of its key cannot be compared: {reason}",
                "write `source: false` in its `checks`; only a key that is stored as it is can be compared",
            )
        keys[name] = column
    return ComparedColumns(keys, columns, left_out)


def _find_column(asset: ConnectionStream, table: Table, name: str) -> tuple[str | None, str]:
    """Return the column of a field, or why it has none to compare."""
    if name.startswith(_LOG_COLUMN):
        return None, "it is of the log, and not of the row"
    fields = asset.fields
    if fields is not None and not fields.covers((name,)):
        return None, "it is not stored (`fields`)"
    if fields is not None and any(path[0] == name for path in (*fields.hashed, *fields.exclude)):
        return None, "the table has its hash, or only a part of it (`fields`)"
    columns = columns_of(asset.make_stored_stream(), table.schema)
    column = column_at(columns, [find_stored_column(asset, name)])
    if column is None or column.name not in table.schema.names:
        return None, "the table does not have it yet"
    if column.kind not in frozenset().union(*_KINDS.values()):
        return None, f"its values have no form to compare ({describe_type(column.kind)})"
    return column.name, ""


def find_stored_column(asset: ConnectionStream, name: str) -> str:
    """Return the name with which a field of the source is stored."""
    return name if asset.renames is None else asset.renames.names.get(name, name)


def find_unfit(
    asset: ConnectionStream, table: Table, compared: ComparedColumns, comparison: Comparison
) -> dict[str, str]:
    """Return the fields whose columns have values of another type than the source, and why.

    Raises:
        ConfigError: a part of the key is one of them; or the source has another key.
    """
    if comparison.key != list(compared.key):
        raise _refuse(
            asset,
            f"its key is {', '.join(compared.key)}, and that of the source {', '.join(comparison.key)}",
            "write the key of the source as `primary_key`",
        )
    kinds = {
        column.name: column.kind for column in columns_of(asset.make_stored_stream(), table.schema)
    }
    types = dict(zip(comparison.key, comparison.key_types, strict=True))
    types |= {column.name: column.type for column in comparison.columns}
    names = {**compared.key, **compared.others}
    unfit = {}
    for name, source_type in types.items():
        kind = kinds[names[name]]
        allowed = _KINDS.get(source_type.partition("(")[0], frozenset())
        if kind not in allowed:
            reason = f"the source has {source_type}, and the table {describe_type(kind)}"
            if name in compared.key:
                raise _refuse(
                    asset,
                    f"the part {name!r} of its key cannot be compared: {reason}",
                    "discover the source again (`elt discover`), and refresh the stream (`elt sync "
                    f"{asset.connection.name} {asset.stream.id.name} --refresh truncate`)",
                )
            unfit[name] = reason
    return unfit


def refuse_incomparable(asset: ConnectionStream) -> None:
    """Refuse a stream whose table cannot be compared with its source, whatever is in it.

    Raises:
        ConfigError: says why, and what to do.
    """
    stream, guidance = (
        asset.stream,
        "leave it out of comparisons (`checks: {source: false}`) and of sweeps (`deletes: remove`)",
    )
    if asset.connection.destination is not None:
        raise _refuse(asset, "its rows are in another destination", "compare them there")
    if asset.settings.partitions is not None:
        raise _refuse(
            asset,
            "it has partitions, of which each is read with a config of its own",
            f"materialise a partition to have it as the source has it; {guidance}",
        )
    if not stream.key:
        raise _refuse(
            asset,
            "it has no key",
            f"write the columns that tell rows apart as `primary_key`, or {guidance}",
        )
    if any(len(part) > 1 for part in stream.key):
        raise _refuse(asset, "a part of its key is in an object", guidance)
    if stream.destination_sync_mode == APPEND:
        raise _refuse(
            asset,
            "its table has every version of a row (`destination_sync_mode: append`)",
            f"write `destination_sync_mode: append_dedup`, or {guidance}",
        )
    if asset.conditions:
        raise _refuse(
            asset,
            "`filter` keeps rows out of its table that the source counts",
            f"make a view in the source of these rows only, and read it without `filter`; or {guidance}",
        )


def refuse_unready(asset: ConnectionStream, tables: StreamTables) -> None:
    """Refuse a table that has not the rows of a whole sync.

    Raises:
        ConfigError: says why, and what to do.
    """
    sync = f"`elt sync {asset.connection.name} {asset.stream.id.name}`"
    if not tables.main.exists or not tables.metadata.sequence:
        raise _refuse(asset, "it was never synced", f"run {sync}")
    if tables.metadata.refresh is not None:
        raise _refuse(
            asset, "a sync of it has to be finished first", f"run {sync}, which goes on with it"
        )


def _refuse(asset: ConnectionStream, reason: str, guidance: str) -> ConfigError:
    return ConfigError(
        f"{asset.name} cannot be compared with its source: {reason}", guidance=guidance
    )
