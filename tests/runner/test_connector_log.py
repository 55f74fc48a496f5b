"""The log of a connector, as people read it: its level, without secrets, of limited length."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from elt_assets.errors import ConfigError, SystemFailure, TransientError
from elt_assets.protocol.masking import Masker
from elt_assets.protocol.messages import Log, Message
from elt_assets.runner.connector import Connector
from elt_assets.runner.connector_log import (
    MAX_ERRORS,
    MAX_LINES,
    MAX_TEXT,
    ConnectorLog,
    level_of,
)
from tests.programs.hostile_source import hostile_source
from tests.support.source import USERS, read_source

SECRET = "hunter2/\u00df+correct horse"
SPECIFICATION = {"properties": {"password": {"type": "string", "airbyte_secret": True}}}
ANSWERS = """
if verb == "check": say("CONNECTION_STATUS", connectionStatus={"status": "SUCCEEDED"})
if verb == "discover": say("CATALOG", catalog={"streams": []})
"""
Heard = list[tuple[str, str]]


def listening(folder: Path, script: str, **how: Any) -> tuple[Connector, Heard]:
    heard: Heard = []
    connector = hostile_source(
        *(folder, script, {"password": SECRET}, SPECIFICATION),
        on_log=lambda level, text: heard.append((level, text)),
        **how,
    )
    return connector, heard


@pytest.mark.spec("protocol.21")
@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("INFO reading users", "INFO"),
        ("WARNING:tap:old", "WARN"),
        ("CRITICAL failed", "FATAL"),
        ("2026-01-02 03:04:05,678 | ERROR    | tap-x.users | failed", "ERROR"),
        ("2026-01-02 03:04:05,678 - tap_x - WARNING - old", "WARN"),
        ("time=2026-01-02 03:04:05 name=singer level=WARNING message=old", "WARN"),
        ("time=2026-01-02 03:04:05 logger_name=x log_level=INFO message=x", "INFO"),
        ("2026-01-02 03:04:05.123 [main] INFO o.x.Y - reading", "INFO"),
        ("2026-01-02T03:04:05Z [warning  ] old", "WARN"),
        ('{"event": "x", "level": "error"}', "ERROR"),
        ("Found 3 ERROR rows", None),
        ("ERRORS: 3", None),
        ("Traceback (most recent call last):", None),
        ("", None),
        ("1 : " * 10_000, None),
    ],
)
def test_a_line_of_stderr_has_the_level_that_it_begins_with(line: str, level: str | None) -> None:
    assert level_of(line) == level
    [message] = ConnectorLog(Masker(), "tap").stderr([line], 0)
    assert message.log is not None and message.log.level == (level or "DEBUG")


@pytest.mark.spec("protocol.11", "protocol.159", "airbyte.24")
@pytest.mark.parametrize("verb", ["check", "discover"])
def test_the_log_of_a_short_command_is_passed_on(verb: str, tmp_path: Path) -> None:
    script = """
say("LOG", log={"level": "WARN", "message": "the API is old"})
print("a plain line")
print("on stderr", file=sys.stderr, flush=True)
say("TRACE", trace={"type": "ANALYTICS", "emitted_at": 1, "analytics": {"type": "t", "value": "v"}})
"""
    connector, heard = listening(tmp_path, script + ANSWERS)
    getattr(connector, verb)()
    assert sorted(heard) == [
        ("DEBUG", "analytics of the connector: t = v"),
        ("DEBUG", "on stderr"),
        ("INFO", "a plain line"),
        ("WARN", "the API is old"),
    ]


@pytest.mark.spec("protocol.21")
def test_the_stderr_of_a_successful_read_is_part_of_its_log(tmp_path: Path) -> None:
    script = "print('on stderr', file=sys.stderr, flush=True); record({'n': 1})"
    found = read_source(listening(tmp_path, script)[0]).logs
    assert [(log.level, log.message) for log in found] == [("DEBUG", "on stderr")]


@pytest.mark.spec("protocol.5", "airbyte.12")
@pytest.mark.parametrize("code", [0, 1])
def test_a_failed_check_with_a_message_is_a_result(code: int, tmp_path: Path) -> None:
    answer = {"status": "FAILED", "message": "the password is wrong"}
    script = f"say('CONNECTION_STATUS', connectionStatus={answer!r}); exit({code})"
    assert listening(tmp_path, script)[0].check().message == "the password is wrong"


def test_a_successful_check_with_an_exit_code_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(SystemFailure, match="ended with exit code 3"):
        listening(tmp_path, ANSWERS + "exit(3)")[0].check()


def test_an_error_trace_explains_a_failed_discovery(tmp_path: Path) -> None:
    script = ANSWERS + "fail('no access', failure_type='config_error'); exit(1)"
    with pytest.raises(ConfigError, match="no access"):
        listening(tmp_path, script)[0].discover()


NOISE = """
for n in range(20_000):
    say("LOG", log={"level": "INFO", "message": f"chatter {n}"})
    say("LOG", log={"level": "WARN", "message": f"warning {n}"})
    say("TRACE", trace={"type": "ANALYTICS", "emitted_at": 1, "analytics": {"type": "t"}})
    print("plain", n)
    print("stderr", n, file=sys.stderr)
"""


def test_too_many_lines_are_dropped_and_counted(tmp_path: Path) -> None:
    start = time.monotonic()
    found = read_source(listening(tmp_path, NOISE)[0])
    minutes = (time.monotonic() - start) // 60 + 1
    summaries = [log.message for log in found.logs if "were dropped" in log.message]
    assert len(found) - len(summaries) <= 2 * MAX_LINES * minutes
    dropped = sum(int(text.split()[0].replace(",", "")) for text in summaries)
    assert dropped + len(found) - len(summaries) == 5 * 20_000
    assert any("warnings and errors" in text for text in summaries)
    assert any("warning 0" in log.message for log in found.logs)


@pytest.mark.spec("protocol.159")
def test_a_text_is_masked_before_it_is_truncated(tmp_path: Path) -> None:
    """Hide secrets also if much of the text is before the place where it is cut."""
    script = """
secret = json.load(open(files["--config"]))["password"]
for text in (secret * 50 + "x" * (16_000 - 51 * len(secret)) + secret, "x" * 1990 + secret, secret * 2000):
    say("LOG", log={"level": "INFO", "message": text, "stack_trace": text})
    say("TRACE", trace={"type": "ANALYTICS", "emitted_at": 1, "analytics": {"type": "t", "value": text}})
    fail(text, internal_message=text, stack_trace=text)
    print(text)
    print(text, file=sys.stderr, flush=True)
exit(1)
"""
    connector, _ = listening(tmp_path, script)
    shown: list[str] = []
    messages = (message for message in connector.read(USERS) if isinstance(message, Message))
    with pytest.raises(SystemFailure) as failure:
        shown.extend(message.to_json().decode() for message in messages)
    output = "\n".join([*shown, str(failure.value)])
    assert "hunt" not in output and "****" in output
    assert max(map(len, shown)) < 60_000


@pytest.mark.parametrize(
    "code",
    [
        base64.b64encode(SECRET.encode()).decode(),
        base64.b64encode(SECRET.encode()).decode().rstrip("="),
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
        base64.b64encode(f"me:{SECRET}".encode()).decode(),
        base64.b64encode(f"user:{SECRET}, and more".encode()).decode(),
        base64.urlsafe_b64encode(f"u:{SECRET}!".encode()).decode(),
        quote(SECRET),
        json.dumps(json.dumps(SECRET)),
    ],
)
def test_a_secret_is_masked_in_every_encoding(code: str) -> None:
    shown = Masker([SECRET])(f"Authorization: {code} sent")
    assert "****" in shown
    left = (
        shown.removeprefix("Authorization: ").removesuffix(" sent").replace("****", "").strip('"\\')
    )
    # of a longer text that was encoded, what is not the secret's stays, and a byte or so of it
    assert len(left) <= len(code) - len(SECRET) or left == ""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgres://bob:s3cr3t@db/x", "postgres://bob:****@db/x"),
        ("at https://bob:a@b@host:80/?q=1 it", "at https://bob:****@host:80/?q=1 it"),
        (r"{\"url\": \"amqp:\/\/bob:s3cr3t@mq\/\"}", r"{\"url\": \"amqp:\/\/bob:****@mq\/\"}"),
        ("http://localhost:8080/me@example.com", "http://localhost:8080/me@example.com"),
        ("ssh://git@host/x", "ssh://git@host/x"),
    ],
)
def test_a_password_in_a_url_is_masked_if_it_is_not_a_declared_secret(
    text: str, shown: str
) -> None:
    assert Masker()(text) == shown


def test_escape_sequences_are_shown_as_text(tmp_path: Path) -> None:
    text = "\x1b[2J\x1b]0;title\x07 done\u202e\n  indented"
    script = f"say('LOG', log={{'level': 'INFO', 'message': {text!r}}})"
    [log] = read_source(listening(tmp_path, script)[0]).logs
    assert log.message == "\\x1b[2J\\x1b]0;title\\x07 done\\u202e\n  indented"


@pytest.mark.parametrize(
    ("level", "shown"),
    [("WARNING", "WARN"), ("critical", "FATAL"), ("\x1b[2J", "INFO"), ("x" * 9_999, "INFO")],
)
def test_an_unknown_level_becomes_a_level_of_the_protocol(level: str, shown: str) -> None:
    message = Message(type="LOG", log=Log(level=level, message="x"))
    [found] = ConnectorLog(Masker(), "x").filter_message(message)
    assert found.log and found.log.level == shown


def test_too_many_errors_fail_the_sync(tmp_path: Path) -> None:
    script = f"for n in range({MAX_ERRORS + 1}): fail(str(n))\ntime.sleep(600)"
    with pytest.raises(SystemFailure, match="more than 1,000 ERROR traces"):
        list(listening(tmp_path, script)[0].read(USERS))


def test_the_text_of_a_message_is_truncated() -> None:
    log = ConnectorLog(Masker(), "x")
    assert log.text("y" * 1_000_000) == "y" * MAX_TEXT + "… (cut)"


@pytest.mark.parametrize("verb", ["check", "discover"])
def test_a_command_is_stopped_at_its_deadline(verb: str, tmp_path: Path) -> None:
    script = "print(os.getpid(), flush=True); time.sleep(600)"
    connector, _ = listening(tmp_path, script, deadlines={verb: 0.5})
    with pytest.raises(
        TransientError, match=f"`{verb}` of connector hostile took longer than 0.5"
    ) as failure:
        getattr(connector, verb)()
    assert failure.value.guidance and f"deadlines.{verb}" in failure.value.guidance
