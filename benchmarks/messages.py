"""The messages of the benchmark: one stream `users`, nine fields with a struct and an array.

The same records on every machine and every Python: a seeded generator and its bits, nothing that
the standard library is free to change. A second set of messages, MIXED, has two more fields in each record: a
decimal of 16 digits, and an object without declared fields, which becomes JSON text.

usage: python -m benchmarks.messages RECORDS      (writes them to stdout)
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TextIO

from elt_assets.protocol.catalog import APPEND, INCREMENTAL, AirbyteStream, ConfiguredStream

SEED = 7
BASE = datetime(2024, 1, 1, tzinfo=timezone.utc)
STEP = timedelta(seconds=3)
EMITTED_AT = 1_700_000_000_000
STATE_EVERY = 100_000
CITIES = ("Paris", "Oslo", "Rome")
TAGS = "abcdef"
BUFFER_BYTES = 1 << 20
HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class MessageSet:
    """A set of messages. `catalog`: what the stream's source says of it; `singer`: as a tap writes them."""

    name: str
    catalog: Path
    is_mixed: bool = False
    singer: bool = False

    @property
    def schema(self) -> dict[str, object]:
        (stream,) = json.loads(self.catalog.read_text())["streams"]
        return dict(stream["json_schema"])

    @property
    def stream(self) -> ConfiguredStream:
        """The stream, appended incrementally."""
        return ConfiguredStream(
            stream=AirbyteStream(name="users", json_schema=self.schema),
            sync_mode=INCREMENTAL,
            destination_sync_mode=APPEND,
            cursor_field=["updated_at"],
            generation_id=1,
            minimum_generation_id=0,
            sync_id=1,
        )


PLAIN = MessageSet("plain", HERE / "catalog.json")
MIXED = MessageSet("mixed", HERE / "catalog_mixed.json", is_mixed=True)
SINGER = MessageSet("singer", HERE / "catalog.json", singer=True)


def write_messages(
    path: Path, records: int, state_every: int = STATE_EVERY, kind: MessageSet = PLAIN
) -> None:
    """Write `records` RECORD messages, and a STATE after every `state_every` and at the end.

    About 338 bytes a record. The file appears whole or not at all.
    """
    part = path.with_name(path.name + ".part")
    with part.open("w", encoding="ascii", buffering=BUFFER_BYTES) as out:
        _write(out, records, state_every, kind)
    part.replace(path)


def cached_messages(
    folder: Path, records: int, state_every: int = STATE_EVERY, kind: MessageSet = PLAIN
) -> Path:
    """The message file of that size in `folder`, written if it is not there yet."""
    path = folder / f"messages-{kind.name}-{records}-{state_every}.jsonl"
    if not path.exists():
        write_messages(path, records, state_every, kind)
    return path


def state_message(updated_at: str) -> str:
    return (
        '{"type": "STATE", "state": {"type": "STREAM", "stream": {"stream_descriptor": '
        f'{{"name": "users"}}, "stream_state": {{"updated_at": "{updated_at}"}}}}}}}}\n'
    )


def time_of(record: int) -> str:
    return f"{(BASE + record * STEP).isoformat()[:19]}Z"


def _write(out: TextIO, records: int, state_every: int, kind: MessageSet) -> None:
    if kind.singer:
        schema = {"type": "SCHEMA", "stream": "users", "schema": kind.schema, "key_properties": []}
        out.write(json.dumps(schema) + "\n")
    out.writelines(_messages(records, state_every, kind))


def _messages(records: int, state_every: int, kind: MessageSet) -> Iterator[str]:
    record_of = _singer_record if kind.singer else _airbyte_record
    state_of = _singer_state if kind.singer else state_message
    for number, data in enumerate(generate_records(records, is_mixed=kind.is_mixed)):
        yield record_of(number, data)
        if (number + 1) % state_every == 0 or number + 1 == records:
            yield state_of(time_of(number))


def _airbyte_record(number: int, data: str) -> str:
    return (
        f'{{"type": "RECORD", "record": {{"stream": "users", "data": {data}, '
        f'"emitted_at": {EMITTED_AT + number}}}}}\n'
    )


def _singer_record(number: int, data: str) -> str:
    return (
        f'{{"type": "RECORD", "stream": "users", "record": {data}, '
        f'"time_extracted": "{time_of(number)}"}}\n'
    )


def _singer_state(updated_at: str) -> str:
    return f'{{"type": "STATE", "value": {{"updated_at": "{updated_at}"}}}}\n'


def generate_records(records: int, *, is_mixed: bool = False) -> Iterator[str]:
    """Yield the records as JSON."""
    rng = random.Random(SEED)
    below, uniform = _below(rng), rng.random
    more = ""
    for i in range(records):
        # The order of the draws is the order of the fields: an f-string is evaluated left to right.
        if is_mixed:
            more = (
                f', "amount": {below(9 * 10**6) + 10**6}.{below(10**9):09d}, "payload": '
                f'{{"kind": "{TAGS[i % 6]}", "{TAGS[i % 3]}": {{"n": {i}, "of": [1, "two", null]}}}}'
            )
        yield (
            f'{{"id": {i}, "name": "user {below(10**6)}", "email": "u{i}@example.com", '
            f'"age": {18 + below(72)}, "balance": {round(uniform() * 1e4, 2)!r}, '
            f'"active": {"true" if uniform() < 0.5 else "false"}, "updated_at": "{time_of(i)}", '
            f'"address": {{"street": "{below(999)} Main St", "city": "{CITIES[below(3)]}", '
            f'"zip": "{10_000 + below(89_999)}"}}, '
            f'"tags": ["{TAGS[below(6)]}", "{TAGS[below(6)]}", "{TAGS[below(6)]}"]{more}}}'
        )


def _below(rng: random.Random) -> Callable[[int], int]:
    """`rng.randrange(n)` for n > 0, without the checks that are most of its time."""
    bits = rng.getrandbits

    def below(n: int) -> int:
        width = n.bit_length()
        drawn = bits(width)
        while drawn >= n:
            drawn = bits(width)
        return drawn

    return below


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("records", type=int)
    _write(sys.stdout, parser.parse_args().records, STATE_EVERY, PLAIN)


if __name__ == "__main__":
    main()
