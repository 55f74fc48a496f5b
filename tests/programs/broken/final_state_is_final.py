"""A source that reads the last two records again after the last state."""

from __future__ import annotations

from tests.programs.broken.base import USERS, Source, main


class Broken(Source):
    def start(self, stream: str, seen: int, mode: str) -> int:
        is_again = stream == USERS and mode == "incremental" and seen == 5
        return super().start(stream, seen, mode) - 2 * is_again


if __name__ == "__main__":
    main(Broken())
