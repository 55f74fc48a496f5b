"""Four verbs over hostile programs: what they are given, what is made of their end, what is shown."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import pytest

from elt_assets.errors import ConfigError, EltError, SystemFailure, TransientError
from elt_assets.protocol.messages import Message, RawRecord, State
from elt_assets.runner import process
from elt_assets.runner.connector import Connector
from elt_assets.runner.source_kind import private_files
from tests.programs.hostile_source import alive, gone, hostile_source
from tests.support.connector_specs import command_spec
from tests.support.source import USERS, fail_to_read, read_source

SECRET = "hunter2/ß"
SPECIFICATION = {
    "type": "object",
    "required": ["host"],
    "additionalProperties": False,
    "properties": {
        "host": {"type": "string"},
        "port": {"type": "integer"},
        "mode": {"enum": ["a", "b"]},
        "password": {"type": "string", "airbyte_secret": True, "minLength": 3},
        "auth": {"oneOf": [{"title": "Key", "type": "object"}, {"type": "null"}]},
        "twice": {"oneOf": [{"title": "One"}, True]},
        "depth": {"properties": {"start": {"pattern": "^[0-9]+$"}}},
    },
}


def left_behind(folder: Path) -> list[Path]:
    return list((folder / "work").iterdir())


@pytest.mark.spec("protocol.1", "protocol.3", "protocol.6", "protocol.7", "airbyte.6", "airbyte.8")
def test_the_four_commands_return_their_results(tmp_path: Path) -> None:
    answers = """
print("starting up")
if verb == "check": say("CONNECTION_STATUS", connectionStatus={"status": "SUCCEEDED"})
if verb == "discover": say("CATALOG", catalog={"streams": [{"name": "users", "json_schema": {}}]})
if verb == "read": record({"id": 1}); say("STATE", state={"data": {"n": 1}})
print("bye")
"""
    connector = hostile_source(tmp_path, answers, {"host": "h"}, SPECIFICATION)
    assert connector.specification.connectionSpecification == SPECIFICATION
    assert connector.check().succeeded
    assert [stream.name for stream in connector.discover().streams] == ["users"]
    assert read_source(connector).kinds == ["LOG", "users", "STATE", "LOG"]


SHOW_FILES = """
seen = {name: json.load(open(path)) for name, path in files.items()}
modes = [oct(os.stat(path).st_mode)[-3:] for path in files.values()]
record({"argv": sys.argv, "files": seen, "modes": modes,
        "folder": oct(os.stat(os.path.dirname(files["--config"])).st_mode)[-3:]})
"""


@pytest.mark.spec("protocol.13", "airbyte.25")
@pytest.mark.usefixtures("any_umask")
def test_argument_files_are_private_and_removed_afterwards(tmp_path: Path) -> None:
    config = {"host": "h", "password": SECRET}
    blob = (
        '{"stream":{"stream_descriptor":{"name":"users"},"stream_state":{"n":1.0}},"type":"STREAM"}'
    )
    connector = hostile_source(tmp_path, SHOW_FILES, config, SPECIFICATION)
    [seen] = read_source(connector, State.from_json(blob)).records
    assert seen["files"]["--config"] == config
    assert seen["files"]["--catalog"] == json.loads(USERS.to_json())
    assert seen["files"]["--state"] == [json.loads(blob)]
    assert (seen["folder"], set(seen["modes"])) == ("700", {"600"})
    assert SECRET not in str(seen["argv"])
    assert left_behind(tmp_path) == []


def test_no_state_file_is_written_without_a_state(tmp_path: Path) -> None:
    [seen] = read_source(hostile_source(tmp_path, SHOW_FILES, {"n": 1})).records
    assert sorted(seen["files"]) == ["--catalog", "--config"]


STREAM = {"type": "STREAM", "stream": {"stream_descriptor": {"name": "users"}, "new": 1}}
GLOBAL = {"type": "GLOBAL", "global": {"stream_states": [], "shared_state": {"n": 1}}, "data": {}}


@pytest.mark.spec("protocol.109", "protocol.110", "protocol.131")
@pytest.mark.parametrize(
    ("states", "file"),
    [
        ([{"data": {"n": 1}}], {"n": 1}),
        ([{"type": "LEGACY", "data": {"n": 1.0, "deep": [None]}, "id": 5}], {"n": 1.0, "deep": [None]}),
        ([{"type": "LEGACY", "data": None}], None),
        ([{"type": "LEGACY"}], None),
        ([STREAM, {**STREAM, "id": 7}], [STREAM, {**STREAM, "id": 7}]),
        ([GLOBAL], [GLOBAL]),
    ],
)  # fmt: skip
def test_a_state_is_written_in_the_format_of_its_type(
    states: list[Any], file: Any, tmp_path: Path
) -> None:
    given = [State.from_json(json.dumps(state)) for state in states]
    [seen] = read_source(hostile_source(tmp_path, SHOW_FILES), *given).records
    assert seen["files"].get("--state") == file


@pytest.mark.parametrize(
    "script", ["exit(1)", "os.kill(os.getpid(), 9)", 'print(\'{"type":"RECORD"}\')']
)
def test_argument_files_are_removed_after_a_failure(script: str, tmp_path: Path) -> None:
    fail_to_read(hostile_source(tmp_path, script))
    assert left_behind(tmp_path) == []


def test_argument_files_of_a_killed_process_are_removed_by_the_next(tmp_path: Path) -> None:
    script = f"""
import os, pathlib
from elt_assets.runner.source_kind import private_files
with private_files(pathlib.Path({str(tmp_path / "work")!r}), {{"config": {{"password": 1}}}}):
    os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", script], check=False)
    assert len(left_behind(tmp_path)) == 1
    with private_files(tmp_path / "work", {"config": {}}) as arguments:
        [folder] = left_behind(tmp_path)
        assert folder == Path(arguments[1]).parent


def test_argument_files_in_use_are_not_removed(tmp_path: Path) -> None:
    with private_files(tmp_path, {"config": {}}) as first:
        with private_files(tmp_path, {"config": {}}):
            pass
        assert stat.S_IMODE(Path(first[1]).stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == []


def test_environment_variables_are_resolved_in_the_config_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = hostile_source(tmp_path, SHOW_FILES, {"host": {"env": "DB_HOST"}}, SPECIFICATION)
    with pytest.raises(ConfigError, match=r"config\.host .* DB_HOST, which is not set"):
        read_source(connector)
    monkeypatch.setenv("DB_HOST", "db")
    assert read_source(connector).records[0]["files"]["--config"] == {"host": "db"}


@pytest.mark.spec("protocol.22")
def test_all_violations_of_the_specification_are_listed_without_values(tmp_path: Path) -> None:
    config = {
        "port": "p4ss", "mode": "p4ss", "password": "p4", "auth": "p4ss", "twice": "p4ss",
        "depth": {"start": "p4ss"}, "colour": "p4ss",
    }  # fmt: skip
    with pytest.raises(ConfigError) as failure:
        hostile_source(tmp_path, "", config, SPECIFICATION).check()
    text = str(failure.value)
    for part in (
        "connector hostile",
        "config: 'host' is a required property",
        "'colour' was unexpected",
        'config.port: is not of type "integer"',
        'config.mode: is not one of ["a", "b"]',
        "config.password: violates `minLength`: 3",
        "config.auth: fits none of: Key, null",
        "config.twice: fits more than one of: One, ?",
        'config.depth.start: does not match "^[0-9]+$"',
        "`source.config`",
    ):
        assert part in text
    assert "p4" not in text


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_error_names_the_signal_that_terminated_the_process(
    number: signal.Signals, tmp_path: Path
) -> None:
    script = f"""
record({{"id": 1}})
print('{{"type":"RECORD","record":{{"stream":"users","data":{{"id"', end="", flush=True)
print("last words", file=sys.stderr, flush=True)
os.kill(os.getpid(), {number.value})
"""
    messages = hostile_source(tmp_path, script).read(USERS)
    assert isinstance(next(messages), RawRecord)
    with pytest.raises(
        SystemFailure, match=rf"^`read` .* was terminated by {number.name}"
    ) as failure:
        next(messages)
    assert failure.value.detail and "last words" in failure.value.detail


def test_messages_before_a_failure_are_returned(tmp_path: Path) -> None:
    messages = hostile_source(tmp_path, "record({'id': 1}); exit(3)").read(USERS)
    assert isinstance(next(messages), RawRecord)
    with pytest.raises(SystemFailure, match=r"ended with exit code 3$"):
        next(messages)


def test_an_exit_code_of_a_shell_for_a_signal_is_explained(tmp_path: Path) -> None:
    assert "137 (128 + SIGKILL)" in str(fail_to_read(hostile_source(tmp_path, "exit(137)"))[1])


def test_a_truncated_line_with_exit_code_0_is_an_error(tmp_path: Path) -> None:
    failure = fail_to_read(hostile_source(tmp_path, """print('{"type":"STATE","sta', end="")"""))[1]
    assert "malformed STATE" in failure.message


@pytest.mark.spec("protocol.145")
@pytest.mark.parametrize(
    ("failure_type", "kind"),
    [
        ("config_error", ConfigError),
        ("transient_error", TransientError),
        ("system_error", SystemFailure),
        ("newer_error", SystemFailure),
        (None, SystemFailure),
    ],
)
def test_an_error_trace_decides_the_kind_of_failure(
    failure_type: str | None, kind: type[EltError], tmp_path: Path
) -> None:
    script = f"""
fail("no such user", internal_message="SQL 28000", stack_trace="at x", failure_type={failure_type!r})
fail("some streams did not sync", failure_type="config_error")
exit(2)
"""
    failure = fail_to_read(hostile_source(tmp_path, script))[1]
    assert type(failure) is kind
    assert failure.message == "no such user (`read` of connector hostile ended with exit code 2)"
    assert failure.detail == "SQL 28000\nat x"


@pytest.mark.spec("protocol.147")
def test_an_error_with_a_stream_takes_precedence_over_one_without(tmp_path: Path) -> None:
    script = """
fail("the sync failed", failure_type="config_error")
fail("503", failure_type="transient_error", stream_descriptor={"name": "users"})
fail("some streams did not sync", failure_type="config_error")
exit(1)
"""
    failure = fail_to_read(hostile_source(tmp_path, script))[1]
    assert isinstance(failure, TransientError) and failure.message.startswith("503 (`read`")


@pytest.mark.parametrize("verb", ["spec", "check", "discover"])
def test_a_missing_result_is_an_error(verb: str, tmp_path: Path) -> None:
    silent = Connector(
        command_spec([sys.executable, "-c", "print('hello')"], {}, tmp_path, "silent")
    )
    connector = silent if verb == "spec" else hostile_source(tmp_path, "print('hello')")
    with pytest.raises(SystemFailure, match=f"`{verb}` of connector .* returned no result"):
        _ = connector.specification if verb == "spec" else getattr(connector, verb)()


SPEC = {"type": "SPEC", "spec": {"connectionSpecification": {"type": "object"}}}


def test_a_result_behind_text_is_used(tmp_path: Path) -> None:
    script = f"import json; print('INFO loading', json.dumps({SPEC!r}))"
    connector = Connector(command_spec([sys.executable, "-c", script], {}, tmp_path, "prefixed"))
    assert connector.specification.connectionSpecification == {"type": "object"}


@pytest.mark.parametrize(
    ("script", "quoted"),
    [
        ("print('Traceback: no module')", "Traceback: no module"),
        (f"import json; print(json.dumps({SPEC!r}, indent=2))", '"type": "SPEC"'),
        (f"import json; print(json.dumps({SPEC!r}), 'done')", '"type": "SPEC"'),
    ],
)
def test_the_error_of_a_missing_result_quotes_the_output(
    tmp_path: Path, script: str, quoted: str
) -> None:
    connector = Connector(command_spec([sys.executable, "-c", script], {}, tmp_path, "odd"))
    with pytest.raises(SystemFailure) as failure:
        _ = connector.specification
    assert quoted in str(failure.value.detail)


@pytest.mark.spec("protocol.12")
def test_an_error_trace_explains_a_missing_result(tmp_path: Path) -> None:
    connector = hostile_source(tmp_path, "fail('no access', failure_type='config_error')")
    with pytest.raises(ConfigError, match=r"no access \(`discover` .* returned no result\)"):
        connector.discover()


def test_only_the_last_lines_of_stderr_are_kept(tmp_path: Path) -> None:
    script = "for n in range(50_000): print('noise', n, '.' * 50, file=sys.stderr)\nexit(1)"
    failure = fail_to_read(hostile_source(tmp_path, script))[1]
    assert failure.detail and "noise 49999" in failure.detail
    assert len(failure.detail) < 10_000


def test_the_error_of_a_line_that_is_too_long_shows_the_limit_and_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "MAX_LINE", 1 << 20)
    script = "record({'x': json.load(open(files['--config']))['password'] + 'x' * (2 << 20)})"
    connector = hostile_source(tmp_path, script, {"host": "h", "password": SECRET}, SPECIFICATION)
    failure = fail_to_read(connector)[1]
    assert "longer than 1 MiB, of stream 'users'" in failure.message
    assert SECRET not in str(failure) and "hunter2" not in str(failure)


SPILL = """
secret = json.load(open(files["--config"]))["password"]
texts = secret, json.dumps(secret), __import__("urllib.parse").parse.quote_plus(secret), secret * 2
for text in texts:
    print("plain", text)
    print("noise", text, file=sys.stderr)
    say("LOG", log={"level": "INFO", "message": text, "stack_trace": text})
    say("TRACE", trace={"type": "ERROR", "emitted_at": 1, "error":
        {"message": text, "internal_message": text, "stack_trace": text}})
    say("NEWER", text=text)
    say("LOG", log=text)
print("x" * 1990, secret * 3)
print("x" * 1990, secret * 3, file=sys.stderr, flush=True)
if verb == "check": say("CONNECTION_STATUS", connectionStatus={"status": "FAILED", "message": secret})
else: exit(1)
"""


def spilling(folder: Path) -> Connector:
    return hostile_source(folder, SPILL, {"host": "h", "password": SECRET}, SPECIFICATION)


def test_secrets_are_masked_in_messages_and_errors(tmp_path: Path) -> None:
    texts: list[str] = []
    messages = (cast("Message", message).to_json() for message in spilling(tmp_path).read(USERS))
    with pytest.raises(EltError) as failure:
        texts.extend(map(bytes.decode, messages))
    output = "\n".join([*texts, str(failure.value)])
    assert len(texts) == 26 and "noise" in output
    assert "hunt" not in output and "****" in output
    assert spilling(tmp_path).check().message == "****"


@pytest.mark.parametrize(
    "line", ['{"type":"CONTROL","control":%s', '{"type":"CONTROL","control":' + "[" * 20_000 + "%s"]
)
def test_the_error_of_a_malformed_message_shows_no_secret(line: str, tmp_path: Path) -> None:
    script = f"print({line!r} % json.dumps(open(files['--config']).read()))"
    connector = hostile_source(tmp_path, script, {"host": "h", "password": SECRET}, SPECIFICATION)
    assert "hunter2" not in str(fail_to_read(connector)[1])


def test_close_stops_the_process_and_its_children(tmp_path: Path) -> None:
    script = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import signal, time\\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"],
    stdout=subprocess.PIPE)
child.stdout.readline()
record({"pids": [os.getpid(), child.pid]})
while True: record({})
"""
    messages = hostile_source(tmp_path, script).read(USERS)
    first = next(messages)
    assert isinstance(first, RawRecord)
    pids = json.loads(bytes(first.data))["pids"]
    assert all(map(alive, pids))
    start = time.monotonic()
    messages.close()
    assert time.monotonic() - start < 6
    assert all(map(gone, pids))
    assert left_behind(tmp_path) == []


def test_a_missing_program_is_a_config_error(tmp_path: Path) -> None:
    connector = Connector(command_spec([str(tmp_path / "none")], {}, tmp_path / "work", "none"))
    with pytest.raises(ConfigError, match="was not found"):
        connector.check()
