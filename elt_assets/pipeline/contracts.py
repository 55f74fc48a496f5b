"""The contract of a stream (`connection.stream`), compared with the columns that its table has or gets.

Compared by `validation` and `stream_plan` before a sync, and by a check after it (`orchestration.checks`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence

from elt_assets.connection.stream import Contract
from elt_assets.errors import ConfigError
from elt_assets.lake.columns import from_json_schema
from elt_assets.lake.columns.logical_types import Column, Struct, column_of
from elt_assets.lake.delta.table import Table
from elt_assets.lake.write.sync_columns import stream_part
from elt_assets.protocol.catalog import ConfiguredStream


def refuse_violations(
    contract: Contract | None, stream: ConfiguredStream, *, during_sync: bool = False
) -> None:
    """Refuse a stream that violates a contract which says `fail`.

    Args:
        stream: as its table stores it.
        during_sync: whether the source described the stream in the sync. It may describe a part of the fields
            at a time, and the table keeps the columns of the others, so none of them is missing.

    Raises:
        ConfigError: names the columns.
    """
    if contract is None or contract.on_violation != "fail":
        return
    columns = from_json_schema.columns(stream.stream.json_schema)
    if violations := list(find_violations(contract, columns, allows_missing=during_sync)):
        name = str(stream.id)
        cause = "in the schema that the source sent" if during_sync else "in the catalog"
        raise ConfigError(
            "\n".join(
                f"stream {name!r}: contract: {cause}: {violation}" for violation in violations
            ),
            guidance="agree with the consumers of the table, then change `contract`; or write "
            "`on_violation: warn`",
        )


def find_table_violations(contract: Contract, table: Table) -> list[str]:
    """Return the differences between a contract and the columns of a table."""
    return list(find_violations(contract, [column_of(f) for f in stream_part(table.schema).fields]))


def find_violations(
    contract: Contract, present: Sequence[Column], *, allows_missing: bool = False
) -> Iterator[str]:
    """Yield the differences between a contract and the columns that are present."""
    for name, kind in contract.columns.items():
        column = _find(present, name)
        if column is None and not allows_missing:
            near = difflib.get_close_matches(name, [column.name for column in present], n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            yield f"there is no column {name!r}{hint}"
        if column is not None and (actual := column.type.simpleString()) != kind:
            yield f"the column {name!r} is {actual}, not {kind}"
    if contract.others == "refuse":
        agreed = {name.split(".")[0] for name in contract.columns} | set(contract.columns)
        for column in present:
            if column.name not in agreed:
                yield f"the column {column.name!r} is not in the contract"


def _find(columns: Sequence[Column], name: str) -> Column | None:
    """Return a column by its name, or a nested one by its path; a name may contain dots."""
    for column in columns:
        if column.name == name:
            return column
        if name.startswith(f"{column.name}.") and isinstance(column.kind, Struct):
            inner = _find(column.kind.fields, name.removeprefix(f"{column.name}."))
            if inner is not None:
                return inner
    return None
