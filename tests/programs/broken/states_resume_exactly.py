"""A source that skips a record after each state but the last."""

from __future__ import annotations

from tests.programs.broken.base import USERS, Source, main


class Broken(Source):
    def start(self, stream: str, seen: int, mode: str) -> int:
        is_skipped = stream == USERS and mode == "incremental" and 0 < seen < 5
        return super().start(stream, seen, mode) + is_skipped


if __name__ == "__main__":
    main(Broken())
