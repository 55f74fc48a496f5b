"""The messages of the benchmark: one stream `users`, nine fields with a struct and an array.

The same records on every machine and every Python: a seeded generator and its bits, nothing that
the standard library is free to change.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

SEED = 7
BASE = datetime(2024, 1, 1, tzinfo=timezone.utc)
STEP = timedelta(seconds=3)
EMITTED_AT = 1_700_000_000_000
STATE_EVERY = 100_000
CITIES = ("Paris", "Oslo", "Rome")
TAGS = "abcdef"
BUFFER_BYTES = 1 << 20
CATALOG = Path(__file__).with_name("catalog.json")
"""What the stream's source says of it."""


def write_messages(path: Path, records: int, state_every: int = STATE_EVERY) -> None:
    """Write `records` RECORD messages, and a STATE after every `state_every` and at the end.

    About 338 bytes a record. The file appears whole or not at all.
    """
    part = path.with_name(path.name + ".part")
    with part.open("w", encoding="ascii", buffering=BUFFER_BYTES) as out:
        out.writelines(_messages(records, state_every))
    part.replace(path)


def cached_messages(folder: Path, records: int, state_every: int = STATE_EVERY) -> Path:
    """The message file of that size in `folder`, written if it is not there yet."""
    path = folder / f"messages-{records}-{state_every}.jsonl"
    if not path.exists():
        write_messages(path, records, state_every)
    return path


def _messages(records: int, state_every: int) -> Iterator[str]:
    rng = random.Random(SEED)
    below, uniform = _below(rng), rng.random
    for i in range(records):
        updated_at = f"{(BASE + i * STEP).isoformat()[:19]}Z"
        # The order of the draws is the order of the fields: an f-string is evaluated left to right.
        yield (
            '{"type": "RECORD", "record": {"stream": "users", "data": {'
            f'"id": {i}, "name": "user {below(10**6)}", "email": "u{i}@example.com", '
            f'"age": {18 + below(72)}, "balance": {round(uniform() * 1e4, 2)!r}, '
            f'"active": {"true" if uniform() < 0.5 else "false"}, "updated_at": "{updated_at}", '
            f'"address": {{"street": "{below(999)} Main St", "city": "{CITIES[below(3)]}", '
            f'"zip": "{10_000 + below(89_999)}"}}, '
            f'"tags": ["{TAGS[below(6)]}", "{TAGS[below(6)]}", "{TAGS[below(6)]}"]'
            f'}}, "emitted_at": {EMITTED_AT + i}}}}}\n'
        )
        if (i + 1) % state_every == 0 or i + 1 == records:
            yield (
                '{"type": "STATE", "state": {"type": "STREAM", "stream": {"stream_descriptor": '
                f'{{"name": "users"}}, "stream_state": {{"updated_at": "{updated_at}"}}}}}}}}\n'
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
    parser.add_argument("path", type=Path)
    parser.add_argument("--state-every", type=int, default=STATE_EVERY)
    args = parser.parse_args()
    write_messages(args.path, args.records, args.state_every)


if __name__ == "__main__":
    main()
