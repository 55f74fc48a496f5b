"""A source whose check fails with a config that works."""

from __future__ import annotations

from tests.programs.broken.base import Source, main


class Broken(Source):
    def is_accepted(self) -> bool:
        return False


if __name__ == "__main__":
    main(Broken())
