"""Refusal of changes of type that change how a key or a cursor compares.

Rows are matched by key and ordered by cursor, in the table's types. If these change so that records do not
find their rows, each row is doubled; if they change so that `10` is before `9`, newer records lose against
older rows. Neither shows in a run. So such a change is refused before anything is read, unless the sync
leaves no row that it applies to.

Which changes are safe: `keeps_equality` and `keeps_order` in `lake.schema.widening`.
Test: `tests/lake/test_key_types.py::test_a_change_goes_on_or_is_refused`
"""

from __future__ import annotations

from collections.abc import Sequence

from elt_assets.errors import ConfigError
from elt_assets.lake.schema import from_json_schema
from elt_assets.lake.schema.evolution import SchemaPlan
from elt_assets.lake.schema.logical_types import (
    JSONS,
    Column,
    LogicalType,
    Scalar,
    Struct,
    column_of,
    describe_type,
    to_stored,
)
from elt_assets.lake.schema.widening import keeps_equality, keeps_order
from elt_assets.lake.write.write_spec import (
    WriteSpec,
    column_at,
    column_path,
    columns_of,
    describe_restart,
)

_NUMBERS = frozenset({Scalar.INTEGER, Scalar.BIG_INTEGER, Scalar.NUMBER, Scalar.BIG_NUMBER})
_KEEP = (
    "or set `on_schema_change: freeze`, so that the column keeps its type; or correct the catalog"
)
_DECLARE = "declare one type for the whole sync, or report it to the maintainer of the source"


def refuse_other_order(
    spec: WriteSpec, plan: SchemaPlan, subject: str, *, in_sync: bool = False
) -> None:
    """Refuse to merge records into rows that compare in another way.

    Args:
        subject: what has the rows.
        in_sync: the source has changed the type in the middle of the sync.

    Raises:
        ConfigError: names the field, both types, the reason, and what to do.
    """
    if not spec.is_keyed:
        return
    guidance = _DECLARE if in_sync else f"{describe_restart(spec)}; {_KEEP}"
    subject = f"stream {str(spec.stream.id)!r}: {subject}"
    columns = columns_of(spec.stream, plan.schema)
    for field in spec.stream.key:
        before, after = _kinds(plan, column_path(columns, field))
        if before is not None and after is not None and not keeps_equality(before, after):
            raise ConfigError(
                f"{subject}: the type of the key {'.'.join(field)!r} changes from {describe_type(before)} to "
                f"{describe_type(after)}; there a value can have several texts (5, 5.0), so records would be "
                "added beside the present rows of their keys",
                guidance=guidance,
            )
    _refuse_other_cursor(spec, plan, column_path(columns, spec.stream.cursor), subject, guidance)


def _refuse_other_cursor(
    spec: WriteSpec, plan: SchemaPlan, path: Sequence[str] | None, subject: str, guidance: str
) -> None:
    name = ".".join(spec.stream.cursor)
    before, after = _kinds(plan, path)
    if before is None or after is None:
        return
    if not keeps_order(before, after):
        raise ConfigError(
            f"{subject}: the type of the cursor {name!r} changes from {describe_type(before)} to "
            f"{describe_type(after)}; texts have another order ('10' is before '9'), so newer records would "
            "lose against older rows",
            guidance=guidance,
        )
    if spec.history and before is Scalar.DATE and after is Scalar.TEXT:
        raise ConfigError(
            f"{subject}: the type of the cursor {name!r} changes from date to string; a history would no "
            "longer know the times of its versions",
            guidance=guidance,
        )
    declared = column_at(
        from_json_schema.columns(spec.stream.stream.json_schema), spec.stream.cursor
    )
    is_number = declared is not None and to_stored(declared.kind) in _NUMBERS
    if is_number and after in (Scalar.TEXT, *JSONS) and spec.on_schema_change != "freeze":
        raise ConfigError(
            f"{subject}: the cursor {name!r} is a number in the catalog and {describe_type(after)} in the "
            "table; texts have another order ('10' is before '9'), so newer records would lose against older "
            "rows",
            guidance=guidance,
        )


def _kinds(
    plan: SchemaPlan, path: Sequence[str] | None
) -> tuple[LogicalType | None, LogicalType | None]:
    """Return the types of a column before and after a plan; None where there is no such column."""
    after = [column_of(field) for field in plan.schema.fields]
    return _kind_of(plan.table_columns, path or ()), _kind_of(after, path or ())


def _kind_of(columns: Sequence[Column], path: Sequence[str]) -> LogicalType | None:
    kind: LogicalType | None = None
    for name in path:
        kind = next((column.kind for column in columns if column.name == name), None)
        columns = kind.fields if isinstance(kind, Struct) else ()
    return kind
