"""Lines that cannot be read, from a source whose records must not be shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from elt_assets.protocol.messages import PlainText
from elt_assets.runner import process
from elt_assets.runner.connector import Connector
from tests.programs.hostile_source import hostile_source
from tests.support.source import fail_to_read, read_source

UNREAD = [
    '"ssn":"S3CRET"}}',
    '{"ssn":"S3CRET"}',
    '{"type":"S3CRET"}',
    '{"type":"LOG","log":"S3CRET"}',
]


def source(folder: Path, *lines: str) -> Connector:
    return hostile_source(folder, "\n".join(f"print({line!r})" for line in lines))


@pytest.mark.parametrize("withhold", [True, False])
def test_unreadable_lines_are_reported_and_quoted_only_if_allowed(
    tmp_path: Path, withhold: bool
) -> None:
    found = read_source(source(tmp_path, *UNREAD), withhold=withhold)
    texts = [log.message for log in found.logs]
    assert len(texts) == len(UNREAD)
    assert ["S3CRET" in text for text in texts] == [not withhold] * len(UNREAD)
    assert [isinstance(message, PlainText) for message in found] == [True, True, False, False]


TORN = [
    '{"type":"RECORD","record":{"stream":"users","data":{"ssn":"S3CRET',
    '{"type":"RECORD","record":{"stream":5,"data":{"ssn":"S3CRET"}}}',
    '{"type":"RECORD","record":{"stream":"users","data":{"ssn":"S3CRET"' + ',"a":[' * 2000,
    '{"type":"RECORD","record":{"stream":"users","data":' + "[" * 5000 + '"S3CRET"',
    '{"ssn":"S3CRET","long":"' + "x" * 2000,
]


@pytest.mark.parametrize("line", TORN, ids=["torn", "misshapen", "torn deep", "deep", "long"])
def test_a_malformed_record_is_not_quoted(
    tmp_path: Path, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if line.startswith('{"ssn"'):
        monkeypatch.setattr(process, "MAX_LINE", 1000)
    connector = source(tmp_path, line, "bye")
    messages, failure = fail_to_read(connector, withhold=True)
    assert "S3CRET" not in str(failure) + repr(messages)


def test_log_messages_of_the_connector_are_shown(tmp_path: Path) -> None:
    log = '{"type":"LOG","log":{"level":"INFO","message":"page 3"}}'
    [shown] = read_source(source(tmp_path, log), withhold=True).logs
    assert shown.message == "page 3"
