"""A second, slow implementation of the hash of a row, and what a comparison should give of some rows."""

from __future__ import annotations

import datetime as dt
import hashlib
import io
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from connectors.sdk import Slice, SlicedStream, Source, Stream, run
from connectors.sdk.arrow_records import split_changes
from connectors.sql.bounds import decode_bound
from elt_assets.errors import error_class
from elt_assets.protocol.catalog import ConfiguredStream
from elt_assets.protocol.row_hash import hash_rows

Json = dict[str, Any]
ANSWER = ("COMPARISON", "RANGE")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


def write_text(value: Any, kind: str) -> str:
    """Return the text of a value, as the table in `elt_assets.protocol.row_hash` has it."""
    if value is None:
        return ""
    if kind.startswith("decimal128"):
        places = int(kind.rpartition(" ")[2].rstrip(")"))
        return f"{Decimal(value):.{places}f}"
    if kind == "string":
        return f"{len(value.encode())}:{value}"
    if kind == "binary":
        return f"x{value.hex()}"
    if kind == "date32":
        return str((value - _EPOCH.date()).days)
    if kind.startswith("timestamp"):
        return str((value.replace(tzinfo=dt.timezone.utc) - _EPOCH) // dt.timedelta(microseconds=1))
    if kind == "double":
        return struct.pack(">d", value).hex()
    if kind == "float":
        return struct.pack(">f", value).hex()
    return str(int(value))


def hash_row(values: Sequence[Any], kinds: Sequence[str]) -> int:
    text = ",".join(write_text(value, kind) for value, kind in zip(values, kinds, strict=True))
    return int.from_bytes(hashlib.md5(text.encode("utf-8", "surrogateescape")).digest()[:8], "big")


def order(key: Sequence[Any]) -> list[Any]:
    """Return what a key is ordered by."""
    return [value.encode() if isinstance(value, str) else value for value in key]


def configure(stream: Stream, **more: Any) -> Json:
    """Return a configured stream as JSON; `more`: properties such as `compare`, `keys`, `cursor_field`."""
    body: Json = {"stream": json.loads(stream.describe().to_json()), "sync_mode": "full_refresh"}
    return {**body, "destination_sync_mode": "append_dedup", **more}


def call(
    source: Source,
    config: Mapping[str, Any],
    folder: Path,
    verb: str,
    configured: Json,
    state: Json | None = None,
) -> list[Json]:
    """Run a command of a source in this process; return its messages.

    Args:
        folder: gets the files of the command.

    Raises:
        EltError: the source reported it.
    """
    files: Json = {"config": config, "catalog": {"streams": [configured]}}
    if state is not None:
        names = {name: configured["stream"].get(name) for name in ("name", "namespace")}
        body = {"stream_descriptor": names, "stream_state": state}
        files["state"] = [{"type": "STREAM", "stream": body}]
    arguments = [verb]
    for name, content in files.items():
        path = folder / f"{name}.json"
        path.write_bytes(msgspec.json.encode(content))
        arguments += [f"--{name}", str(path)]
    output = io.BytesIO()
    code = run(source, arguments, output)
    messages = [json.loads(line) for line in output.getvalue().splitlines()]
    errors = [m["trace"]["error"] for m in messages if m.get("trace", {}).get("type") == "ERROR"]
    if code:
        assert errors, messages
        raise error_class(errors[0]["failure_type"])(errors[0]["message"])
    return messages


def list_ranges(messages: Sequence[Json]) -> Iterator[tuple[Any, Any, int, int]]:
    """Yield the ranges of the answer of `compare`."""
    for message in messages:
        if message["type"] == "RANGE":
            body = message["range"]
            yield body.get("after"), body.get("until"), body["rows"], int(body["hash"])


def list_keys(messages: Sequence[Json]) -> list[tuple[Any, int, Any]]:
    """Return the keys of the answer of `compare`."""
    return [
        (key, int(hash_of_row), cursor)
        for message in messages
        if message["type"] == "RANGE"
        for key, hash_of_row, cursor in message["range"]["keys"]
    ]


def sum_ranges(
    keys: Sequence[Any], hashes: Sequence[int], size: int
) -> list[tuple[Any, Any, int, int]]:
    """Return the ranges that rows in the order of their key should have."""
    ranges, after = [], None
    for start in range(0, len(keys) - size + 1, size):
        until = keys[start + size - 1]
        ranges.append((after, until, size, sum(hashes[start : start + size]) % 2**64))
        after = until
    rest = hashes[len(keys) - len(keys) % size :]
    return [*ranges, (after, None, len(rest), sum(rest) % 2**64)]


def read_hashes(stream: SlicedStream, comparison: Json) -> dict[tuple[Any, ...], int]:
    """Return the hashes of the rows that a full read gives, by their key as Arrow has it.

    Args:
        comparison: the message COMPARISON, which has the columns and their types.
    """
    configured = ConfiguredStream.from_json(msgspec.json.encode(configure(stream)))
    columns = {column["name"]: column["type"] for column in comparison["columns"]}
    names = [*comparison["key"], *columns]
    kinds = [*comparison["key_types"], *columns.values()]
    hashes: dict[tuple[Any, ...], int] = {}
    for part in stream.slices(configured, None):
        if isinstance(part, Slice):
            for batch in stream.read_slice(msgspec.json.decode(msgspec.json.encode(part.data))):
                rows, _ = split_changes(batch)
                arrays = [rows.column(name) for name in names]
                keys = zip(*(a.to_pylist() for a in arrays[: len(comparison["key"])]), strict=True)
                hashes |= dict(zip(keys, hash_rows(arrays, kinds).tolist(), strict=True))
    return hashes


def check_comparison(
    source: Source, config: Mapping[str, Any], folder: Path, name: str, sizes: Sequence[int]
) -> Json:
    """Check that a stream's ranges and keys have the hashes of the rows that a read gives.

    Returns:
        The message COMPARISON.
    """
    stream = next(stream for stream in source.open(dict(config)) if stream.name == name)
    assert isinstance(stream, SlicedStream)
    comparison: Json = {}
    for size in sizes:
        body = configure(stream, compare={"rows": size})
        head, *ranges = (
            m for m in call(source, config, folder, "compare", body) if m["type"] in ANSWER
        )
        comparison = head["comparison"]
        hashes = read_hashes(stream, comparison)
        ordered = sorted(hashes, key=order)
        expected = sum_ranges(ordered, [hashes[key] for key in ordered], size)
        summed = list(list_ranges(ranges))
        assert [part[2:] for part in summed] == [part[2:] for part in expected]
        decoded = [(decode_key(a), decode_key(u)) for a, u, _, _ in summed]
        assert decoded == [part[:2] for part in expected]
        bounds = [{"after": after, "until": until} for after, until, _, _ in summed]
        body = configure(stream, compare={"ranges": bounds})
        listed = list_keys(call(source, config, folder, "compare", body))
        assert [(decode_key(k), h) for k, h, _ in listed] == [(k, hashes[k]) for k in ordered]
    return comparison


def decode_key(key: Sequence[Any] | None) -> tuple[Any, ...] | None:
    return None if key is None else tuple(map(decode_bound, key))
