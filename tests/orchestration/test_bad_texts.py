"""A sync of texts that are no text: from the source to the table, the event and the next sync."""

from __future__ import annotations

import json

import pytest

from tests.programs.scripted import record, script
from tests.support.project import Project
from tests.support.runs import failure_of, fetch_materializations, materialize, read_log

pytestmark = pytest.mark.usefixtures("spark_provider")

STATE = '{"type":"STREAM","stream":{"stream_descriptor":{"name":"things"},"stream_state":%s}}'
BLOB = '{"seen": "cut \\ud83d\\u0000\t", "n": NaN}'


def test_a_state_and_records_with_bad_texts_are_synced_and_resumed_from(own: Project) -> None:
    lines = [
        record(id=1, name="cut \ud83d"),
        '{"type":"LOG","log":{"level":"WARN","message":"half \\ud83d of it"}}',
        f'{{"type":"STATE","state":{STATE % BLOB}}}',
    ]
    script(own, lines)
    for _ in range(2):
        result = materialize(own)
        assert result.success, failure_of(result)
    assert "half \ufffd of it" in read_log(own, result)
    assert [row["name"] for row in own.rows("scripted", "things")] == 2 * ["cut \ufffd"]
    state = (own.root / "scripted-source" / "state.json").read_text()
    assert state == f"[{STATE % BLOB}]"
    event = fetch_materializations(own, "scripted", "things")[None]["elt/state"]
    assert event["stream"]["stream_state"] == {"seen": "cut \\ud83d\x00\t", "n": "NaN"}
    json.dumps(event, ensure_ascii=False, allow_nan=False).encode()  # as Dagster's page does
