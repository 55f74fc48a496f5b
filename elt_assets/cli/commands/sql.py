"""`elt sql`: runs a query over the tables of the project."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import msgspec
import pyarrow as pa

from elt_assets.cli.lookup import find_lake
from elt_assets.cli.output import OK, Output, subcommand
from elt_assets.cli.query_output import (
    FORMATS,
    encode_json,
    list_rows,
    open_output,
    refuse_same_names,
)
from elt_assets.errors import ConfigError
from elt_assets.lake.read.query import Limits, Name, QueryRows, run_query
from elt_assets.lake.read.scans import RowScan
from elt_assets.lake.read.snapshots import scan
from elt_assets.lake.write.companions import app_id
from elt_assets.pipeline.table_names import find_key, table_of
from elt_assets.storage.folders import scratch
from elt_assets.storage.location import Location

_TABLE = "table"
_STDIN = "-"
_BATCH_ROWS = 10_000
_NULL = "NULL"
_SIZE = re.compile(r"\d+(\.\d+)? ?([KMGT]i?)?B", re.IGNORECASE)


def _check_size(_: click.Context, _parameter: click.Parameter, value: str) -> str:
    if not _SIZE.fullmatch(value):
        raise click.BadParameter(f"{value!r} is no size such as 500MB or 4GB")
    return value


@subcommand(
    "sql",
    'elt sql "select count(*) from shop.users"',
    'elt sql "select * from shop.users" --format csv',
    'elt sql "from shop.users" --output users.parquet',
    "elt sql - < query.sql",
)
@click.argument("query")
@click.option(
    "--format",
    "format_",
    type=click.Choice([_TABLE, *FORMATS]),
    help="Format of the rows; default: that of the suffix of --output, or else table.",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="File to write; default: stdout.",
)
@click.option(
    "-n",
    "count",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    metavar="ROWS",
    help="Number of rows that a table shows.",
)
@click.option(
    "--memory",
    default="1GB",
    show_default=True,
    callback=_check_size,
    metavar="SIZE",
    help="Memory of the query; what does not fit goes to temporary files.",
)
def command(
    out: Output, query: str, format_: str | None, output: Path | None, count: int, memory: str
) -> int:
    """Run a query over the tables of the project, by DuckDB. It can read these tables, and nothing else.

    A table has the name of its asset with dots: `shop.users`, `shop.users_history`, `store.public."items 2"`.
    QUERY is one statement in DuckDB's dialect; - reads it from stdin.
    """
    chosen = _choose_format(out, format_, output)
    text = sys.stdin.read() if query == _STDIN else query
    with scratch(Path(tempfile.gettempdir()), "sql") as folder:
        limits = Limits(
            folder, memory, min(_BATCH_ROWS, count + 1) if chosen is None else _BATCH_ROWS
        )
        with run_query(text, ProjectTables(find_lake()), limits) as rows:
            if chosen is None:
                _show(out, rows, count)
            else:
                _write(out, rows, chosen, output)
    return OK


def _choose_format(out: Output, format_: str | None, output: Path | None) -> str | None:
    """Return the format of the rows; None for a table, or the document for machines."""
    chosen = format_ or (output.suffix.removeprefix(".").lower() if output is not None else _TABLE)
    if chosen not in FORMATS and (output is not None or chosen != _TABLE):
        raise ConfigError(
            f"the format of {output} is not known",
            guidance=f"write --format with one of {', '.join(FORMATS)}",
        )
    if out.is_machine and format_ is not None and output is None:
        raise ConfigError(
            "--json prints one document, which has the rows, and --format prints the rows alone",
            guidance="leave one of the two out, or write the rows to a file with --output",
        )
    if chosen == "parquet" and output is None:
        raise ConfigError("Parquet is not printed", guidance="write --output FILE")
    return None if chosen == _TABLE else chosen


@dataclass(frozen=True)
class ProjectTables:
    """The tables of the project, each at its newest version."""

    lake: Location

    def find(self, name: Name) -> Name:
        return find_key(self.lake, name)

    def open(self, key: Name) -> RowScan:
        return scan(table_of(self.lake, key), app_id(key))


def _show(out: Output, rows: QueryRows, count: int) -> None:
    """Print the first rows."""
    schema, batches, first = rows.schema, list[pa.RecordBatch](), 0
    for batch in rows.batches:
        batches.append(batch)
        first += len(batch)
        if first > count:
            break
    table = pa.Table.from_batches(batches, schema)
    visible = table.slice(0, count)
    out.table(
        schema.names,
        zip(
            *(
                [*map(_format, column.to_pylist(maps_as_pydicts="strict"))]
                for column in visible.columns
            ),
            strict=True,
        ),
    )
    if first > count:
        out.note(
            f"these are the first {count} rows: -n ROWS shows more, and --format csv prints all of them"
        )
    if out.is_machine:
        refuse_same_names(schema)
        listed = [row for batch in visible.to_batches() for row in list_rows(batch)]
        columns = [{"name": field.name, "type": str(field.type)} for field in schema]
        answer = {"columns": columns, "rows": msgspec.json.decode(encode_json(listed))}
        out.document({**answer, "is_complete": first <= count})


def _format(value: Any) -> object:
    """Return a value as a cell of a table. Integers stay: they are aligned."""
    if value is None:
        return _NULL
    if isinstance(value, dict | list | bytes):
        return encode_json(value).decode()
    return value


def _write(out: Output, rows: QueryRows, format_: str, output: Path | None) -> None:
    """Write all rows to a file, or to stdout."""
    total = 0
    with _end_quietly(), open_output(output) as sink:
        writer = FORMATS[format_](sink, rows.schema)
        for batch in rows.batches:
            writer.write(batch)
            total += len(batch)
        writer.close()
    if output is not None:
        out.line(f"wrote {output}: {total:,} rows")
        out.document({"file": str(output), "rows": total})


@contextlib.contextmanager
def _end_quietly() -> Iterator[None]:
    """End without an error if the program that reads stdout has ended, as `head` does."""
    try:
        yield
    except BrokenPipeError:
        # Python would write what is left at the end of the program, and report an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
