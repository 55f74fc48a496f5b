"""A source whose catalog says when it was made."""

from __future__ import annotations

import time

from tests.programs.broken.base import Json, Source, main


class Broken(Source):
    def streams(self) -> list[Json]:
        first, *others = super().streams()
        note = {"description": f"as of {time.time_ns()}"}
        return [{**first, "json_schema": {**first["json_schema"], **note}}, *others]


if __name__ == "__main__":
    main(Broken())
