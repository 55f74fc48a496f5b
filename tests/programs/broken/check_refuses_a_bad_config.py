"""A source whose check accepts any config."""

from __future__ import annotations

from tests.programs.broken.base import Source, main


class Broken(Source):
    def is_accepted(self) -> bool:
        return True


if __name__ == "__main__":
    main(Broken())
