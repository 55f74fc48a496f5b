"""Processes of the conformance kit: their files, the configs that they change, and secrets they print."""

from __future__ import annotations

import base64
import json
import os
import signal
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from connectors.testing.connector import Connector, Processes, SecretSearch
from connectors.testing.options import KitOptions
from connectors.testing.process import Ended, stop_process
from connectors.testing.protocols.airbyte import Airbyte
from connectors.testing.protocols.singer import Singer

SCHEMA = {"properties": {"token": {"type": "string", "airbyte_secret": True}}}


class Program:
    """Prints lines, objects as JSON, and remembers the configs that it got."""

    def __init__(self, *lines: Any, log: str = "", writes: dict[str, Any] | None = None):
        self.lines = lines
        self.log = log
        self.writes = writes
        self.configs: list[dict[str, Any]] = []
        self.modes: set[str] = set()

    def __call__(self, command: Sequence[str], stdout: Path, stderr: Path, _: float) -> Ended:
        config = Path(command[command.index("--config") + 1])
        self.configs.append(json.loads(config.read_text()))
        self.modes |= {oct(stat.S_IMODE(path.stat().st_mode)) for path in (config, config.parent)}
        lines = (line if isinstance(line, str) else json.dumps(line) for line in self.lines)
        stdout.write_text("".join(f"{line}\n" for line in lines))
        stderr.write_text(self.log)
        if self.writes is not None:
            config.write_text(json.dumps(self.writes))
        return Ended(0, 0.0)


def connector(program: Program, *, tap: bool = False) -> Connector:
    config = {"token": "hunter2-abc", "host": "h"}
    protocol = Singer() if tap else Airbyte()
    found = Connector(protocol, ["x"], config, KitOptions(), Processes(execute=program))
    found.learn_secrets(SCHEMA)
    return found


def test_files_are_private() -> None:
    program = Program()
    connector(program).run("check", "`check`")
    assert program.modes == {"0o600", "0o700"}


def test_an_updated_config_is_used_next_and_its_secrets_are_searched() -> None:
    control = {
        "type": "CONNECTOR_CONFIG",
        "emitted_at": 1,
        "connectorConfig": {"config": {"token": "renewed"}},
    }
    program = Program({"type": "CONTROL", "control": control}, log="it is renewed\n")
    source = connector(program)
    first, second = (source.run("check", "`check`") for _ in range(2))
    assert [config["token"] for config in program.configs] == ["hunter2-abc", "renewed"]
    assert program.configs[1]["host"] == "h"
    assert not first.leaks  # the secret was not known before
    assert [(leak.secret, leak.output, leak.line) for leak in second.leaks] == [
        ("config.token", "stderr", 1)  # the message that changes the config must have it
    ]


@pytest.mark.parametrize("kind", ["link", "endless", "pipe", "folder", "removed"])
def test_a_config_file_that_a_tap_replaced_is_not_followed(kind: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text('{"token": "of-another"}')

    class Replacing(Program):
        def __call__(self, command: Sequence[str], *rest: Any) -> Ended:
            ended = super().__call__(command, *rest)
            config = Path(command[command.index("--config") + 1])
            config.unlink()
            make: dict[str, Callable[[], None]] = {
                "link": lambda: config.symlink_to(other),
                "endless": lambda: config.symlink_to("/dev/zero"),
                "pipe": lambda: os.mkfifo(config),
                "folder": config.mkdir,
                "removed": lambda: None,
            }
            make[kind]()
            return ended

    tap = connector(Replacing(), tap=True)
    tap.run("discover", "`discover`")
    assert tap.config == {"token": "hunter2-abc", "host": "h"}


def test_a_tap_may_write_to_its_config_file() -> None:
    program = Program(writes={"token": "renewed", "host": "h"})
    tap = connector(program, tap=True)
    tap.run("discover", "`discover`")
    tap.run("discover", "`discover`", config={"token": "other"})
    tap.run("discover", "`discover`")
    assert [config["token"] for config in program.configs] == ["hunter2-abc", "other", "renewed"]


def test_lines_that_are_not_messages_are_reported() -> None:
    program = Program("text", {"type": "RECORD"}, {"type": "NEWS"}, {"type": "FUTURE"}, [1])
    found = connector(program).run("check", "`check`").transcript
    assert [flaw.line for flaw in found.stray] == [1, 2, 3, 4, 5]


def test_a_record_that_is_not_valid_json_is_reported() -> None:
    """The decoder of syncs repairs it; a source must not send it."""
    record = '{"type": "RECORD", "record": {"stream": "s", "data": {"x": NaN}, "emitted_at": 1}}'
    read = connector(Program("", record)).run("check", "`check`")
    [flaw] = read.transcript.stray
    assert (flaw.line, flaw.text[:14]) == (2, "not valid JSON")
    assert not read.records


@pytest.mark.parametrize(
    "text",
    [
        "the token is p@ss/wörd1",
        "https://user:p%40ss%2Fw%C3%B6rd1@host/",
        "https://user:p@ss/wörd1@host/",
        json.dumps({"token": "p@ss/wörd1"}),
        base64.b64encode("user:p@ss/wörd1".encode()).decode(),
    ],
)
def test_a_secret_is_found_in_any_form(text: str) -> None:
    assert SecretSearch("p@ss/wörd1")(f"{text}\n")
    assert not SecretSearch("another-secret")(f"{text}\n")


@pytest.mark.process
@pytest.mark.parametrize("is_blocked", [False, True])
def test_sigterm_ends_a_process_also_where_the_kit_does_not_get_it(
    is_blocked: bool, tmp_path: Path
) -> None:
    handler = signal.getsignal(signal.SIGTERM)
    try:
        if is_blocked:
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        else:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        stopped = stop_process(["sleep", "60"], tmp_path / "stderr", after=0.1)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        signal.signal(signal.SIGTERM, handler)
    assert stopped is not None
    assert stopped.ended.code == -signal.SIGTERM
