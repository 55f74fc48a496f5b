"""Routing of RECORD lines in blocks: lines that begin like the lines of a known stream are not decoded.

For the readers of `runner` (`connector`, `singer_tap`) and of `destination`.

The head of a stream's lines is learned from a line that was decoded completely. It is a hint: whether the
data of a routed line is valid JSON, and whether the line names its stream a second time, is found out when
the lake parses it, before any state is committed (`lake.write.parsing`, `sync.segments.refuse_foreign`).

`RecordRuns` is the same for all protocols; a `Shape` has the form of the lines of one, and at the end are
those of Airbyte and of Singer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import msgspec

from elt_assets.protocol.codec import decode_blocks
from elt_assets.protocol.lines import split
from elt_assets.protocol.messages import Form, Message, RawRecord, Received, RecordLines
from elt_assets.protocol.singer import Translator

MAX_HEADS = 2_000
"""Maximum number of heads that are known at a time."""
_MIN_RUN = 1 << 14
"""Minimum number of bytes of consecutive lines with one head that are routed without a look at each line."""
_LONG = 1 << 21
"""Number of bytes of a line that is decoded without a copy, if it is alone in its block."""
_MAX_SIZE = 4_000
"""Maximum number of bytes of a line's head, and of what follows the data."""


@dataclass(frozen=True)
class Shape:
    """The form of the RECORD lines of a protocol that are routed without decoding."""

    form: Form
    key: bytes  # the name of the data, with the colon. Lines are grouped by what is before it.
    # Matches the head up to the data's `{`; its group `stream` is the stream's name, and its group `decisive`
    # matches if `decisive` is in the head.
    head: re.Pattern[bytes]
    # The name of a property that decides, besides the stream's name, how the line is processed. Usually it is
    # behind the data.
    decisive: bytes
    # Matches, behind the data, a property that differs from record to record; its group 1 is the value.
    varying: re.Pattern[bytes]
    value: bytes  # the pattern of such values
    closing: bytes  # the end of a line

    def learn_head(self, line: bytes, record: RawRecord) -> Head | None:
        """Return the head of a line that was decoded as a record; None if others like it are not to be
        routed."""
        match, data = self.head.match(line), bytes(record.data)
        if match is None or not line.startswith(data, match.end() - 1):
            return None
        tail = line[match.end() + len(data) - 2 :] + b"\n"  # from the data's `}`
        ending = self.closing + (b"\r\n" if tail.endswith(b"\r\n") else b"\n")
        if not tail.endswith(ending) or max(match.end(), len(tail)) > _MAX_SIZE:
            return None
        try:  # a name in JSON that the decoder accepts, and that is UTF-8, is the name in each line
            (match[0] + tail).decode()
            msgspec.json.decode(match[0] + tail)
        except (UnicodeDecodeError, msgspec.DecodeError):
            return None
        # Other lines may differ from this one only in the varying property.
        varying = self.varying.search(tail)
        first, end = varying.span(1) if varying else (len(tail), len(tail))
        value = self.value if varying else b""
        form = re.compile(re.escape(tail[:first]) + value + re.escape(tail[end:]))
        return Head(
            form=self.form,
            stream=record.stream,
            namespace=record.namespace,
            sent_name=match["stream"].decode(),
            key=line[: line.find(self.key)],
            prefix=match[0],
            ending=ending,
            tail=None if match["decisive"] else form,
            absent=None if self.decisive in tail else self.decisive,
        )


def pattern(text: bytes) -> re.Pattern[bytes]:
    """Compile a pattern in which a blank stands for any white space."""
    return re.compile(text.replace(b" ", rb"\s*"))


@dataclass(frozen=True)
class Head:
    """The common parts of the lines of one stream."""

    form: Form
    stream: str
    namespace: str | None
    sent_name: str
    key: bytes  # what is before the name of the data
    prefix: bytes  # the line up to the data's `{`
    ending: bytes  # the end of the line, with its newline
    # Matches the end of a line from the data's `}`, if the decisive property is there as it is in the line
    # from which the head was learned: it has the same value, or is absent. None if the prefix has this
    # property.
    tail: re.Pattern[bytes] | None
    # The name of the decisive property, if it was absent. A line without these bytes need not be compared
    # with `tail`.
    absent: bytes | None

    def fits(self, block: bytes, count: int) -> bool:
        """Return whether each of `count` lines begins and ends as the lines of this stream.

        A line contains no newline, so counting what surrounds each newline decides this. A second message on
        a line is found when the lake parses it.
        """
        return (
            block.startswith(self.prefix)
            and block.endswith(self.ending)
            and block.count(self.ending + self.prefix) == count - 1
            and (
                self.tail is None
                or (self.absent is not None and self.absent not in block)
                or len(self.tail.findall(block)) == count
            )
        )

    @cached_property
    def other_line(self) -> re.Pattern[bytes]:
        """The pattern of a newline that is not followed by another line with this head."""
        return re.compile(rb"\n(?!%b)" % re.escape(self.prefix))

    def end_of_run(self, block: bytes, start: int) -> int:
        """Return the end of the consecutive lines with this prefix; `start` if there are none."""
        match = (
            self.other_line.search(block, start) if block.startswith(self.prefix, start) else None
        )
        return start if match is None else match.end()

    def lines(self, block: bytes, count: int) -> RecordLines:
        return RecordLines(self.form, self.stream, self.namespace, self.sent_name, block, count)

    def may_be_stream_of(self, other: Head) -> bool:
        """Return whether the records of two heads may belong to one stream: a source may omit namespaces."""
        return self.stream == other.stream and (
            self.namespace == other.namespace or None in (self.namespace, other.namespace)
        )


class RecordRuns:
    """Converts blocks of lines to messages, with runs of a stream's records as `RecordLines`.

    The records of each stream stay in their order. A line that is not routed is decoded in its place: after
    all records before it, of whatever stream.

    Args:
        decode: returns the messages of whole lines.
        names: names of streams by the name in the lines, where the two differ.
        on_run: called with the stream of each run, before the lines behind the run are decoded.
    """

    def __init__(
        self,
        shape: Shape,
        decode: Callable[[bytes], Iterable[RawRecord | Message]],
        names: Mapping[str, str] = MappingProxyType({}),
        on_run: Callable[[str], object] = str,
    ):
        self._shape = shape
        self._decode_lines = decode
        self._names = names
        self._on_run = on_run
        self._heads: dict[bytes, Head] = {}
        self._last: Head | None = None

    def messages(self, block: bytes) -> Iterator[Received]:
        """Yield the messages of whole lines; the last line may have no newline.

        Raises:
            EltError: as `decode`.
        """
        if len(block) > _LONG and block.find(b"\n", 0, len(block) - 1) < 0:
            yield from self._decode_text(block)
            return
        start, head = 0, self._last
        if head is not None and block.startswith(head.prefix):
            count = block.count(b"\n")
            if head.fits(block, count):
                yield self._run(head, block, count)
                return
        while head is not None:
            end = head.end_of_run(block, start)
            if end - start < _MIN_RUN:
                break
            run = block[start:end]
            count = run.count(b"\n")
            if head.fits(run, count):
                yield self._run(head, run, count)
            else:
                yield from self._lines(run)
            start = block.find(b"\n", end) + 1 or len(block)
            yield from self._lines(block[end:start])
            head = self._last
        yield from self._lines(block[start:])

    def _run(self, head: Head, block: bytes, count: int) -> RecordLines:
        self._on_run(head.stream)
        return head.lines(block, count)

    def _lines(self, block: bytes) -> Iterator[Received]:
        lines = block.split(b"\n")
        last = lines.pop()
        yield from self._route_mixed(lines)
        if last:
            yield from self._decode([last])

    def _route_mixed(self, lines: Sequence[bytes]) -> Iterator[Received]:
        """Yield the messages of lines of several streams, and of other messages.

        Consecutive lines with known heads are grouped by their heads. Other consecutive lines are decoded
        together, except for lines from which a head can be learned.
        """
        key_end, groups, start = self._shape.key, dict[bytes, list[bytes]](), 0
        for number, line in enumerate(lines):
            key = line[: line.find(key_end)]
            try:
                groups[key].append(line)
                continue
            except KeyError:
                pass
            if key in self._heads and not groups:
                yield from self._decode(lines[start:number])
                start = number
            if key in self._heads:
                groups[key] = [line]
                continue
            if groups:
                yield from self._route_groups(groups, lines[start:number])
                groups, start = {}, number
            if self._shape.head.match(line):
                yield from self._decode(lines[start:number])
                yield from self._learn(line)
                start = number + 1
        if groups:
            yield from self._route_groups(groups, lines[start:])
        else:
            yield from self._decode(lines[start:])

    def _route_groups(
        self, groups: Mapping[bytes, list[bytes]], lines: Sequence[bytes]
    ) -> Iterable[Received]:
        """Return the runs of groups, which together are some lines; or the messages of these lines, decoded
        in their order, if a line does not fit to its head."""
        runs = []
        for key, group in groups.items():
            head, count = self._heads[key], len(group)
            group.append(b"")
            block = b"\n".join(group)
            if head.fits(block, count):
                runs.append(self._run(head, block, count))
                self._last = head
            else:
                self._forget([head])
        return runs if len(runs) == len(groups) else self._decode(lines)

    def _decode(self, lines: Sequence[bytes]) -> Iterator[RawRecord | Message]:
        if lines:
            yield from self._decode_text(b"\n".join([*lines, b""]))

    def _decode_text(self, text: bytes) -> Iterator[RawRecord | Message]:
        for message in self._decode_lines(text):
            if isinstance(message, Message) and message.generation is not None:
                # Which version of a stream is the present one decides how its next record is processed.
                self._forget(list(self._heads.values()))
            yield message

    def _learn(self, line: bytes) -> Iterable[RawRecord | Message]:
        """Return the messages of a line; know its head from now on if it is a record."""
        messages = list(self._decode([line]))
        records = [message for message in messages if isinstance(message, RawRecord)]
        is_one = len(records) == 1 and records[0] is messages[-1]
        head = self._shape.learn_head(line, records[0]) if is_one else None
        if head is not None and self._names.get(head.sent_name, head.sent_name) == head.stream:
            if len(self._heads) >= MAX_HEADS:
                self._forget(list(self._heads.values()))
            # Lines with two heads would be grouped apart, and lose their order.
            self._forget([other for other in self._heads.values() if other.may_be_stream_of(head)])
            self._heads[head.key] = head
        return messages

    def _forget(self, heads: Iterable[Head]) -> None:
        for head in heads:
            del self._heads[head.key]
        self._last = None


_AIRBYTE = Shape(
    form=Form.AIRBYTE,
    key=b'"data":',
    head=pattern(
        rb' \{ "type" : "RECORD" , "record" : \{ (?:(?P<decisive>"namespace") : (?:"[^"\\]*"|null) , )?'
        rb'"stream" : "(?P<stream>[^"\\]*)" , "data": \{'
    ),
    decisive=b'"namespace"',
    varying=pattern(rb'"emitted_at" : (\d+)'),
    value=rb"\d+",
    closing=b"}}",
)


# A new version of a stream must become a GENERATION, so lines with another version are decoded.
_SINGER = Shape(
    form=Form.SINGER,
    key=b'"record":',
    head=pattern(
        rb' \{ "type" : "RECORD" , "stream" : "(?P<stream>[^"\\]*)" , "record": \{(?P<decisive>)'
    ),
    decisive=b'"version"',
    varying=pattern(rb'"time_extracted" : ("[^"\\]*")'),
    value=rb'"[^"\\\n]*"',
    closing=b"}",
)


def airbyte_runs() -> RecordRuns:
    """Return the routing of the lines of an Airbyte connector."""
    return RecordRuns(_AIRBYTE, lambda lines: decode_blocks([lines]))


def singer_runs(translator: Translator) -> RecordRuns:
    """Return the routing of the lines of a tap."""

    def decode(lines: bytes) -> Iterator[RawRecord | Message]:
        for line in split([lines]):
            yield from translator.messages(line)

    return RecordRuns(_SINGER, decode, translator.names, translator.add_records)
