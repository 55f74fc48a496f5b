"""A source that counts one record too many between two states."""

from __future__ import annotations

from tests.programs.broken.base import Source, main


class Broken(Source):
    def state(self, stream: str, seen: int, records: int, *, is_last: bool) -> None:
        super().state(stream, seen, records + 1, is_last=is_last)


if __name__ == "__main__":
    main(Broken())
