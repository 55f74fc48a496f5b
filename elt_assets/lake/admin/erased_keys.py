"""The keys of a file, in the types of the columns of a table: for `elt erase --keys`.

Called by `orchestration.erasing`.

A file is CSV with a header, or has a JSON object on each line. Its columns are the fields of the key, by the
names of the source or by those of the table's columns. A value that its column cannot have is an error: it
would be a key that no row has.
"""

from __future__ import annotations

import base64
import csv
import datetime as dt
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import pyarrow as pa

from elt_assets.errors import ConfigError
from elt_assets.lake.merge.file_splitting import MAX_KEYS, Key
from elt_assets.lake.worker.parquet import type_at

_FORMS = 'CSV with a header, such as `id`, or lines of JSON, such as `{"id": 7}`'


def read_keys(
    path: Path,
    key: Key,
    fields: Sequence[Sequence[str]],
    schema: pa.Schema,
    change: Callable[[Sequence[str], Any], Any],
) -> pa.Table:
    """Return the keys of a file, each once.

    Args:
        key: the columns of the key.
        fields: the same as the source calls them.
        schema: the columns of the table.
        change: returns the value that is stored for a value of the source, by its field.

    Raises:
        ConfigError: names the line, and what is wrong with it.
    """
    kinds = [type_at(schema, part) for part in key]
    names = [(".".join(field), ".".join(part)) for field, part in zip(fields, key, strict=True)]
    keys: dict[tuple[Any, ...], None] = {}
    for line, row in _read_rows(path):
        values = []
        for (source, column), field, kind in zip(names, fields, kinds, strict=True):
            name = source if source in row else column
            if name not in row:
                raise _refuse(path, line, f"it has no {source!r}")
            try:
                value = change(field, row[name])
                values.append(None if value is None else _convert(value, kind))
            except (ValueError, TypeError, InvalidOperation, OverflowError):
                raise _refuse(path, line, f"the value of {source!r} is not a {kind}") from None
        if all(value is None for value in values):
            raise _refuse(path, line, "the key is null")
        keys[tuple(values)] = None
        if len(keys) > MAX_KEYS:
            raise ConfigError(
                f"--keys: {path} has more than {MAX_KEYS:,} keys",
                guidance="split it, and erase the keys of one file after the other",
            )
    if not keys:
        raise ConfigError(f"--keys: {path} has no key", guidance=f"write {_FORMS}")
    return _make_table([list(column) for column in zip(*keys, strict=True)], key, kinds)


def _refuse(path: Path, line: int, reason: str) -> ConfigError:
    """Return an error about a line; it quotes no value."""
    return ConfigError(
        f"--keys: line {line} of {path}: {reason}",
        guidance=f"write {_FORMS}; nothing was changed",
    )


def _read_rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError(
            f"--keys: {path} cannot be read: {reason}", guidance=f"write {_FORMS}"
        ) from None
    if text.lstrip().startswith("{"):
        yield from _read_json(path, text)
        return
    reader = csv.DictReader(text.splitlines())
    for row in reader:
        if None in row or None in row.values():
            raise _refuse(path, reader.line_num, "it has another number of values than the header")
        yield reader.line_num, {name: value or None for name, value in row.items()}


def _read_json(path: Path, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                row = json.loads(line, parse_float=Decimal)
            except (ValueError, RecursionError):
                raise _refuse(path, number, "it is not JSON") from None
            if not isinstance(row, dict):
                raise _refuse(path, number, "it is no object")
            yield number, dict(_flatten(row))


def _flatten(row: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _convert(value: Any, kind: pa.DataType) -> Any:
    """Return a value in the type of its column.

    Raises:
        ValueError, TypeError, InvalidOperation, OverflowError: the column cannot have it.
    """
    if isinstance(value, bool) is not pa.types.is_boolean(kind) and not isinstance(value, str):
        raise TypeError
    text = value if isinstance(value, str) else str(value)
    if pa.types.is_integer(kind):
        number = int(text)
    elif pa.types.is_boolean(kind):
        number = ("false", "true").index(text.lower())  # ValueError for any other text
        return bool(number)
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return text
    elif pa.types.is_decimal(kind):
        return pa.scalar(Decimal(text), kind).as_py()
    elif pa.types.is_floating(kind):
        return float(text)
    elif pa.types.is_date(kind):
        return dt.date.fromisoformat(text)
    elif pa.types.is_timestamp(kind):
        moment = dt.datetime.fromisoformat(text.replace("Z", "+00:00"))
        zone = dt.timezone.utc if kind.tz else None
        return (
            moment.replace(tzinfo=moment.tzinfo or zone) if kind.tz else moment.replace(tzinfo=None)
        )
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return base64.b64decode(text, validate=True)
    else:
        raise TypeError
    return pa.scalar(number, kind).as_py()


def _make_table(columns: Sequence[list[Any]], key: Key, kinds: Sequence[pa.DataType]) -> pa.Table:
    """Return values as columns of the paths of a key; parts of one object are in one column."""
    arrays = [pa.array(values, kind) for values, kind in zip(columns, kinds, strict=True)]
    return pa.table(_nest([(tuple(part), array) for part, array in zip(key, arrays, strict=True)]))


def _nest(parts: Sequence[tuple[tuple[str, ...], pa.Array]]) -> dict[str, pa.Array]:
    names = dict.fromkeys(path[0] for path, _ in parts)
    nested: dict[str, pa.Array] = {}
    for name in names:
        below = [(path[1:], array) for path, array in parts if path[0] == name]
        if below[0][0]:
            inner = _nest(below)
            nested[name] = pa.StructArray.from_arrays(list(inner.values()), list(inner))
        else:
            nested[name] = below[0][1]
    return nested
