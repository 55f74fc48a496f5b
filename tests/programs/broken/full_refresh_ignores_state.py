"""A source whose full refresh begins at the state."""

from __future__ import annotations

from tests.programs.broken.base import Source, main


class Broken(Source):
    def start(self, stream: str, seen: int, mode: str) -> int:
        return seen


if __name__ == "__main__":
    main(Broken())
