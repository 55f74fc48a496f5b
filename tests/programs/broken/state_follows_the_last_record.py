"""A source without a state after the last record of an incremental read."""

from __future__ import annotations

from tests.programs.broken.base import USERS, Source, main


class Broken(Source):
    def state(self, stream: str, seen: int, records: int, *, is_last: bool) -> None:
        if not is_last or stream != USERS:
            super().state(stream, seen, records, is_last=is_last)


if __name__ == "__main__":
    main(Broken())
