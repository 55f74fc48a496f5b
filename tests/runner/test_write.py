"""Destinations as programs: what they are fed, what they answer, and what is made of either's end."""

from __future__ import annotations

import itertools
import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elt_assets.errors import ConfigError, EltError, SystemFailure, TransientError
from elt_assets.protocol.catalog import AirbyteStream, ConfiguredCatalog, ConfiguredStream
from elt_assets.protocol.codec import encode
from elt_assets.protocol.messages import Message
from elt_assets.protocol.wire import repair
from elt_assets.runner.connector import Connector
from elt_assets.runner.kinds import open_connector
from tests.programs.hostile_source import gone, hostile_source
from tests.support.connector_specs import command_spec, spec_of
from tests.support.source import USERS

ECHO = """
for line in sys.stdin:
    if json.loads(line)["type"] == "STATE": print(line, end="", flush=True)
"""
RECORD = b'{"type":"RECORD","record":{"stream":"users","data":{"n":1},"emitted_at":1}}\n'


def state(number: int) -> bytes:
    return b'{"type":"STATE","state":{"type":"LEGACY","data":{"n":%d}}}\n' % number


def numbers(messages: list[Message]) -> list[int]:
    blobs = [message.state.data for message in messages if message.state and message.state.data]
    return [json.loads(bytes(blob))["n"] for blob in blobs]


def write(connector: Connector, lines: Any, **how: Any) -> list[Message]:
    return list(connector.write(USERS, lines, **how))


def collect(connector: Connector, lines: Any, **how: Any) -> tuple[list[Message], EltError]:
    """Return its answer, and the error that was raised."""
    answers: list[Message] = []
    with pytest.raises(EltError) as failure:
        answers.extend(connector.write(USERS, lines, **how))
    return answers, failure.value


@pytest.mark.spec("protocol.8", "protocol.16")
def test_answers_of_the_destination_are_returned(tmp_path: Path) -> None:
    script = (
        ECHO
        + """
print("done")
record({})
seen = {name: json.load(open(path)) for name, path in files.items()}
say("LOG", log={"level": "INFO", "message": json.dumps(seen)})
"""
    )
    lines = [RECORD, state(1), RECORD, state(2)]
    *states, noise, log = write(hostile_source(tmp_path, script, {"root": "/x"}), lines)
    assert [encode(message) for message in states] == [state(1), state(2)]
    assert noise.log and log.log
    seen = json.loads(log.log.message)
    assert seen == {"--config": {"root": "/x"}, "--catalog": json.loads(USERS.to_json())}


def test_states_are_returned_while_lines_are_still_sent(tmp_path: Path) -> None:
    answered = threading.Event()

    def lines() -> Iterator[bytes]:
        yield state(1)
        assert answered.wait(20)
        yield state(2)

    messages = hostile_source(tmp_path, ECHO).write(USERS, lines())
    first = next(messages)
    answered.set()
    assert numbers([first, *messages]) == [1, 2]


def test_a_slow_destination_slows_its_input(tmp_path: Path) -> None:
    made = 0

    def lines() -> Iterator[bytes]:
        nonlocal made
        while made < 100_000:  # 8 MB: more than any pipe holds
            made += 1
            yield RECORD

    go = tmp_path / "go"
    script = f"""
print("up", flush=True)
while not os.path.exists({str(go)!r}): time.sleep(0.01)
print(len(sys.stdin.readlines()))
"""
    messages = hostile_source(tmp_path, script).write(USERS, lines())
    next(messages)
    time.sleep(0.5)
    before = made
    assert before < 50_000
    go.touch()
    [message] = messages
    assert message.log and message.log.message == "100000"


def test_the_error_of_a_destination_takes_precedence_over_a_broken_pipe(tmp_path: Path) -> None:
    script = "print(sys.stdin.readline(), end='')\nfail('disk full', failure_type='config_error')\nexit(4)"
    answers, failure = collect(
        hostile_source(tmp_path, script), itertools.chain([state(1)], itertools.repeat(RECORD))
    )
    assert numbers(answers) == [1]
    assert isinstance(failure, ConfigError)
    assert failure.message == "disk full (`write` of connector hostile ended with exit code 4)"


@pytest.mark.spec("protocol.108")
def test_a_destination_that_ends_before_its_input_has_failed(tmp_path: Path) -> None:
    _, failure = collect(hostile_source(tmp_path, "exit(0)"), itertools.repeat(RECORD))
    assert isinstance(failure, SystemFailure)
    assert "ended with exit code 0 before it read all of its input" in failure.message


def test_a_destination_can_finish_after_the_source_has_failed(tmp_path: Path) -> None:
    def lines() -> Iterator[bytes]:
        yield from (state(1), state(2))
        raise TransientError("the source broke")

    script = "lines = sys.stdin.readlines()\ntime.sleep(0.3)\nfor one in lines: print(one, end='')"
    answers, failure = collect(hostile_source(tmp_path, script), lines())
    assert numbers(answers) == [1, 2]
    assert isinstance(failure, TransientError) and failure.message == "the source broke"
    _, failure = collect(hostile_source(tmp_path, script + "\nexit(1)"), lines())
    assert failure.message == "the source broke"


def test_a_relay_loses_no_messages_and_leaves_no_processes(tmp_path: Path) -> None:
    spoken = """
say("RECORD", record={"stream": "users", "data": {"n": 1}, "emitted_at": 1.0, "new": [1],
    "meta": {"changes": []}}, more=1)
print('{"type":"RECORD","record":{"stream":"users","data":{"n":NaN},"old":null}}')
say("STATE", state={"data": {"n": 7}}, id=3)
"""
    (tmp_path / "source").mkdir()
    source = hostile_source(tmp_path / "source", spoken)
    sent = (one for one in source.read(USERS, whole=True) if isinstance(one, Message))
    relayed = (repair(encode(one)) for one in sent)
    keep = tmp_path / "kept"
    script = f"open({str(keep)!r}, 'w').writelines(sys.stdin.readlines())"
    assert write(hostile_source(tmp_path, script), relayed, stop=source.cancel) == []
    first, second, third = map(json.loads, keep.read_text().splitlines())
    assert first["record"]["new"] == [1] and first["more"] == 1
    assert first["record"]["meta"] == {"changes": []} and first["record"]["emitted_at"] == 1
    assert second["record"] == {"stream": "users", "data": {"n": "NaN"}, "old": None}
    assert third == {"type": "STATE", "state": {"data": {"n": 7}}, "id": 3}


@pytest.mark.parametrize("ending", ["exit(3)", "exit(0)", "time.sleep(60)"])
def test_a_silent_source_is_stopped_with_the_destination(ending: str, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    pid = tmp_path / "pid"
    source = hostile_source(
        tmp_path / "source",
        f"open({str(pid)!r}, 'w').write(str(os.getpid()))\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nrecord({})\ntime.sleep(600)",
    )
    lines = (encode(one) for one in source.read(USERS, whole=True) if isinstance(one, Message))
    destination = hostile_source(
        tmp_path, f"sys.stdin.readline()\nprint('up', flush=True)\n{ending}"
    )
    messages = destination.write(USERS, lines, stop=source.cancel)
    next(messages)
    began = time.monotonic()
    if ending == "time.sleep(60)":
        messages.close()
    else:
        with pytest.raises(SystemFailure, match=r"`write` of connector"):
            list(messages)
    assert time.monotonic() - began < 12
    assert gone(int(pid.read_text()))


def test_a_destination_that_waits_for_input_is_not_stopped_as_silent(
    tmp_path: Path,
) -> None:
    def slow() -> Iterator[bytes]:
        for number in range(4):
            time.sleep(0.8)
            yield state(number)

    def opened(script: str) -> Connector:
        command = hostile_source(tmp_path, script).spec.value
        return Connector(command_spec(command, {}, tmp_path / "work", "slow", heartbeat=1.5))

    assert numbers(write(opened(ECHO), slow())) == [0, 1, 2, 3]
    with pytest.raises(TransientError, match="sent no output"):
        write(opened("time.sleep(60)"), itertools.repeat(RECORD))
    with pytest.raises(TransientError, match="sent no output"):
        write(opened("sys.stdin.read(); time.sleep(60)"), [RECORD])


DESTINATION = """
import json, sys
if sys.argv[1] == "spec":
    print(json.dumps({"type": "SPEC", "spec": {"connectionSpecification": {}, **%r}}))
else:
    catalog = json.load(open(sys.argv[sys.argv.index("--catalog") + 1]))
    modes = [stream["destination_sync_mode"] for stream in catalog["streams"]]
    print(json.dumps({"type": "LOG", "log": {"level": "INFO", "message": ",".join(modes)}}))
"""


def modes_sent(folder: Path, mode: str, *, is_refresh: Any = False, **specification: Any) -> str:
    """The modes in the catalog that a destination of some specification is called with."""
    program = folder / "destination.py"
    program.write_text(DESTINATION % specification)
    destination = Connector(command_spec([sys.executable, str(program)], {}, folder / "work", "d"))
    stream = ConfiguredStream(
        stream=AirbyteStream(name="users", json_schema={}),
        destination_sync_mode=mode,
        generation_id=2,
        minimum_generation_id=2 if is_refresh or mode.startswith("overwrite") else 0,
    )
    [log] = destination.write(ConfiguredCatalog(streams=[stream]), [])
    assert log.log is not None
    return log.log.message


@pytest.mark.spec("protocol.46", "protocol.86")
@pytest.mark.parametrize(
    ("wanted", "modes", "version", "sent"),
    [
        ("append", ["append", "overwrite"], None, "append"),
        ("update", None, None, "update"),
        ("overwrite_dedup", ["overwrite_dedup"], None, "overwrite_dedup"),
        ("overwrite_dedup", ["append_dedup"], "0.18.0", "append_dedup"),
        ("overwrite_dedup", None, "0.9.0", "append_dedup"),
    ],
)
def test_a_destination_gets_a_mode_that_it_supports(
    tmp_path: Path, wanted: str, modes: list[str] | None, version: str | None, sent: str
) -> None:
    capabilities = {"supported_destination_sync_modes": modes, "protocol_version": version}
    assert modes_sent(tmp_path, wanted, **capabilities) == sent


@pytest.mark.spec("protocol.46")
@pytest.mark.parametrize(
    ("wanted", "modes", "version"),
    [
        ("append_dedup", ["append", "overwrite"], None),
        ("overwrite_dedup", ["append", "append_dedup"], "0.8.0"),
        ("overwrite_dedup", ["append", "overwrite"], "0.18.0"),
        ("overwrite_dedup", None, None),
    ],
)
def test_an_unsupported_mode_is_refused_before_the_source_is_read(
    tmp_path: Path, wanted: str, modes: list[str] | None, version: str | None
) -> None:
    capabilities = {"supported_destination_sync_modes": modes, "protocol_version": version}
    with pytest.raises(ConfigError) as failure:
        modes_sent(tmp_path, wanted, **capabilities)
    assert f"not support the destination_sync_mode of 'users' ({wanted})" in failure.value.message
    assert all(mode in failure.value.message for mode in modes or [])


@pytest.mark.spec("protocol.107")
@pytest.mark.parametrize(
    ("mode", "version", "is_refused"),
    [
        ("append", None, True),
        ("append", "latest", True),
        ("append", "0.8.0", True),
        ("append_dedup", "0.2.0", True),
        ("append", "0.9.0", False),
        ("append_dedup", "1.0.0", False),
        ("overwrite", None, False),
    ],
)
def test_a_refresh_is_refused_if_the_destination_would_keep_the_old_rows(
    tmp_path: Path, mode: str, version: str | None, is_refused: bool
) -> None:
    if not is_refused:
        assert modes_sent(tmp_path, mode, is_refresh=True, protocol_version=version) == mode
        return
    with pytest.raises(ConfigError, match=r"cannot refresh 'users'.*0\.9 or later"):
        modes_sent(tmp_path, mode, is_refresh=True, protocol_version=version)


@pytest.mark.spec("protocol.44")
@pytest.mark.parametrize("version", ["2.0.0", "17"])
def test_an_unknown_version_of_the_protocol_is_refused(tmp_path: Path, version: str) -> None:
    with pytest.raises(ConfigError, match=f"uses version {version} of the Airbyte Protocol"):
        modes_sent(tmp_path, "append", protocol_version=version)


@pytest.mark.spec("protocol.44")
@pytest.mark.parametrize("version", ["0.2.0", "v1.0", "latest", ""])
def test_other_versions_of_the_protocol_are_accepted(tmp_path: Path, version: str) -> None:
    assert modes_sent(tmp_path, "append", protocol_version=version) == "append"


def test_secrets_of_a_destination_are_masked(tmp_path: Path) -> None:
    specification = {"properties": {"password": {"type": "string", "airbyte_secret": True}}}
    script = "say('LOG', log={'level': 'INFO', 'message': open(files['--config']).read()})\nexit(1)"
    destination = hostile_source(tmp_path, script, {"password": "hunter2"}, specification)
    answers, failure = collect(destination, [])
    assert answers[0].log and "hunter2" not in answers[0].log.message + str(failure)


CLIENT = """
import subprocess, sys
assert "--interactive" in sys.argv
sys.exit(subprocess.call([{program!r}, *sys.argv[sys.argv.index("test/destination:1") + 1:]]))
"""


@pytest.mark.spec("airbyte.5")
def test_a_destination_in_an_image_reads_its_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [program] = hostile_source(tmp_path, ECHO).spec.value
    client = tmp_path / "client.py"
    client.write_text(CLIENT.format(program=program))
    monkeypatch.setenv("ELT_DOCKER", f"{sys.executable} {client}")
    destination = open_connector(spec_of("image", "test/destination:1", tmp_path))
    assert numbers(write(destination, [RECORD, state(1)])) == [1]
