"""A source whose records do not have the namespace of their stream."""

from __future__ import annotations

from typing import Any

from tests.programs.broken.base import COLOURS, Json, Source, main


class Broken(Source):
    def streams(self) -> list[Json]:
        users, colours = super().streams()
        return [users, {**colours, "namespace": "public"}]

    def record(self, stream: str, row: Json) -> None:
        super().record(stream, row)

    def say(self, kind: str, **body: Any) -> None:
        for path in (("state", "stream"), ("trace", "stream_status")):
            inner = body.get(path[0], {}).get(path[1])
            if inner and inner["stream_descriptor"]["name"] == COLOURS:
                inner["stream_descriptor"]["namespace"] = "public"
        estimate = body.get("trace", {}).get("estimate")
        if estimate and estimate["name"] == COLOURS:
            estimate.update(namespace="public", row_estimate=0)
        if kind == "STATE" and body["state"]["stream"]["stream_descriptor"]["name"] == COLOURS:
            body["state"].pop("sourceStats")
        super().say(kind, **body)


if __name__ == "__main__":
    main(Broken())
