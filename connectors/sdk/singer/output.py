"""The Singer messages of a tap; its log goes to stderr.

Spec: Singer, messages.
"""

from __future__ import annotations

import time
import traceback
from datetime import datetime, timezone
from typing import Any, BinaryIO, TextIO

from msgspec import Raw

from connectors.sdk.encoding import encode
from connectors.sdk.groups import GroupState
from connectors.sdk.items import Measure, Record
from connectors.sdk.output import TimedOutput, encode_record
from connectors.sdk.singer.catalog import SelectedStream, remove_fields
from connectors.sdk.singer.state import TapState
from connectors.sdk.sync import StreamOutput
from elt_assets.errors import EltError
from elt_assets.protocol.catalog import FULL_REFRESH, StreamDescriptor
from elt_assets.protocol.message_output import readable


class TapOutput(TimedOutput):
    """The messages of a tap on stdout, and its log on stderr."""

    def __init__(self, stdout: BinaryIO, stderr: TextIO):
        super().__init__(stdout)
        self._stderr = stderr
        self._last, self._last_text = 0, b""

    def line(self, content: bytes) -> None:
        """Write a line."""
        self._buffer += content + b"\n"

    def record(self, head: bytes, record: Record, tail: bytes) -> None:
        """Send a RECORD. This is the hot path.

        Args:
            head: the message up to the record.
            tail: the message from there to the value of `time_extracted`.
        """
        encoded = encode_record(record)
        emitted_at = time.time_ns() // 1_000_000
        self._buffer += b"%b%b%b%b}\n" % (head, encoded, tail, self._time(emitted_at))
        self.flush_if_due(emitted_at)

    def state(self, state: TapState) -> None:
        self.line(b'{"type":"STATE","value":%b}' % state.value())
        self.flush()

    def log(self, level: str, text: str) -> None:
        print(f"{level} {self.mask(readable(text))}", file=self._stderr, flush=True)

    def error(self, error: BaseException, stream: StreamDescriptor | None = None) -> None:
        where = "" if stream is None else f"stream {stream.id}: "
        if isinstance(error, EltError):
            self.log("ERROR", f"{where}{error}")
        else:
            stack = traceback.format_exception(type(error), error, error.__traceback__)
            self.log("ERROR", f"{where}{''.join(stack)}")

    def _time(self, emitted_at: int) -> bytes:
        """Return a time in milliseconds since 1970 as JSON; many records have the same."""
        if emitted_at != self._last:
            moment = datetime.fromtimestamp(emitted_at / 1000, timezone.utc)
            self._last, self._last_text = (
                emitted_at,
                encode(moment.isoformat(timespec="milliseconds")),
            )
        return self._last_text


class TapStreamOutput(StreamOutput):
    """The Singer messages about one stream.

    A full table has a version, and ends with ACTIVATE_VERSION: the target then removes all other rows.
    """

    def __init__(self, output: TapOutput, selected: SelectedStream, state: TapState):
        self._output = output
        self._selected = selected
        self._state = state
        self._name = encode(selected.name)
        is_full = selected.configured.sync_mode == FULL_REFRESH
        self._version = int(time.time() * 1000) if is_full else None
        self._head = b'{"type":"RECORD","stream":%b,"record":' % self._name
        version = b"" if self._version is None else b',"version":%d' % self._version
        self._tail = version + b',"time_extracted":'

    def begin(self) -> None:
        message = {
            "type": "SCHEMA",
            "stream": self._selected.name,
            "schema": self._selected.schema,
            "key_properties": self._selected.key_properties,
            "bookmark_properties": self._selected.bookmark_properties,
        }
        self._output.line(encode(message))
        self._output.flush()

    def record(self, record: Record) -> None:
        excluded = self._selected.excluded
        stored = remove_fields(record, excluded) if excluded else record
        self._output.record(self._head, stored, self._tail)

    def state(self, state: dict[str, Any] | Raw, records: int) -> None:
        """Send the state of the tap; a full table has none, since it is read as a whole."""
        del records
        if self._version is None:
            self._state.move(self._selected.name, state)
            if self._state.is_due:
                self._output.state(self._state)

    def group_state(self, state: GroupState) -> None:
        self._state.move_group(state)
        if self._state.is_due:
            self._output.state(self._state)

    def estimate(self, rows: int) -> None:
        self._output.log("INFO", f"stream {self._selected.name}: about {rows} records")

    def measure(self, measure: Measure) -> None:
        """Spec: Singer, metrics: a line of the log."""
        metric = {
            "type": "gauge",
            "metric": measure.name,
            "value": measure.value,
            "tags": {"stream": self._selected.name},
        }
        self._output.log("INFO", f"METRIC: {encode(metric).decode()}")

    def warn(self, text: str) -> None:
        self._output.log("WARNING", f"stream {self._selected.name}: {text}")

    def wait(self, seconds: float, reason: str) -> None:
        self.warn(f"waits {seconds:.0f} seconds ({reason.lower().replace('_', ' ')})")

    def complete(self) -> None:
        if self._version is not None:
            head = b'{"type":"ACTIVATE_VERSION","stream":%b,"version":%d}'
            self._output.line(head % (self._name, self._version))

    def fail(self, error: Exception) -> None:
        self._output.error(error, StreamDescriptor(name=self._selected.name))
