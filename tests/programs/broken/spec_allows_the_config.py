"""A source whose specification refuses a config that works."""

from __future__ import annotations

from typing import ClassVar

from tests.programs.broken.base import Json, Source, main


class Broken(Source):
    specification: ClassVar[Json] = {
        **Source.specification,
        "additionalProperties": False,
        "maxProperties": 1,
    }


if __name__ == "__main__":
    main(Broken())
