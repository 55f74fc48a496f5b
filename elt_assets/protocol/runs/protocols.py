"""Routing of the RECORD lines of each protocol."""

from __future__ import annotations

from collections.abc import Iterator

from elt_assets.protocol.airbyte.codec import decode_blocks
from elt_assets.protocol.airbyte.lines import split
from elt_assets.protocol.airbyte.messages import Form, Message, RawRecord
from elt_assets.protocol.runs.routing import RecordRuns, Shape, pattern
from elt_assets.protocol.singer.messages import Translator

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
