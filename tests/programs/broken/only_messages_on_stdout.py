"""A source that prints its progress on stdout."""

from __future__ import annotations

from tests.programs.broken.base import Source, main


class Broken(Source):
    def read(self, stream: str, mode: str) -> None:
        print(f"reading {stream} …")
        super().read(stream, mode)


if __name__ == "__main__":
    main(Broken())
