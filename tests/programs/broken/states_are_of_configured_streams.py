"""A source that sends a state of a stream that is not configured."""

from __future__ import annotations

from tests.programs.broken.base import Source, main


class Broken(Source):
    def read(self, stream: str, mode: str) -> None:
        super().read(stream, mode)
        blob = {"stream_descriptor": {"name": stream, "namespace": "public"}, "stream_state": {}}
        self.say("STATE", state={"type": "STREAM", "stream": blob})


if __name__ == "__main__":
    main(Broken())
