"""A Singer tap with the verbs of a connector: what it is given, what is made of what it says."""

from __future__ import annotations

import contextlib
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from elt_assets.errors import ConfigError, EltError, SystemFailure, TransientError
from elt_assets.protocol.catalog import ConfiguredCatalog, ConfiguredStream
from elt_assets.protocol.masking import MASK
from elt_assets.protocol.messages import Message, PlainText, RawRecord, State
from elt_assets.runner import singer_batches
from elt_assets.runner import singer_tap as singer
from elt_assets.runner.singer_tap import SingerTap
from tests.programs.singer_tap import SCHEMA, USERS, given, record, state, tap, written
from tests.support.connector_specs import command_spec
from tests.support.source import SourceOutput, fail_to_read, read_source

SECRET = "hunter2/ß"


def catalog_of(connector: SingerTap, **settings: Any) -> ConfiguredCatalog:
    streams = connector.discover().streams
    return ConfiguredCatalog([ConfiguredStream(stream, **settings) for stream in streams])


def read_tap(connector: SingerTap, *states: State, **options: Any) -> SourceOutput:
    return read_source(connector, *states, catalog=catalog_of(connector), **options)


def failure_of_tap(connector: SingerTap) -> EltError:
    return fail_to_read(connector, catalog_of(connector))[1]


def test_check_discover_and_read_return_their_results(tmp_path: Path) -> None:
    connector = tap(tmp_path, [SCHEMA, record(id=1), state(1)], {"host": "h"})
    assert connector.check().succeeded
    assert [each.name for each in connector.discover().streams] == ["db-users"]
    found = read_tap(connector)
    assert found.kinds == ["CATALOG", "db-users", "STATE", "TRACE"]
    trace = found[-1].trace if isinstance(found[-1], Message) else None
    assert trace and trace.stream_status and trace.stream_status.status == "COMPLETE"
    assert trace.stream_status.stream_descriptor.name == "db-users"
    assert list((tmp_path / "work").iterdir()) == []


@pytest.mark.spec("singer.4", "singer.5", "singer.6")
def test_a_tap_gets_its_config_catalog_and_state(tmp_path: Path) -> None:
    connector = tap(tmp_path, [], {"host": "h"})
    catalog = catalog_of(connector, sync_mode="incremental", cursor_field=["id"])
    asked = given(tmp_path)
    assert asked["files"] == {"--config": {"host": "h"}}
    assert asked["arguments"][-1] == "--discover"
    blob = '{"type":"STREAM","stream":{"stream_descriptor":{"name":"db-users"},"stream_state":{"n":1.0}}}'
    list(connector.read(catalog, [State.from_json(blob)]))
    files, modes = given(tmp_path)["files"], given(tmp_path)["modes"]
    assert sorted(files) == ["--catalog", "--config", "--state"] and modes == ["600"]
    assert files["--state"] == {"bookmarks": {"db-users": {"n": 1.0}}}
    [entry] = files["--catalog"]["streams"]
    assert (entry["tap_stream_id"], entry["replication_method"]) == ("db-users", "INCREMENTAL")
    list(connector.read(catalog))
    assert "--state" not in given(tmp_path)["files"]


def test_a_legacy_state_is_passed_byte_for_byte(tmp_path: Path) -> None:
    connector = tap(tmp_path)
    read_tap(
        connector, State.from_json('{"type":"LEGACY","data":{"currently_syncing":"x","n":1.0}}')
    )
    assert given(tmp_path)["files"]["--state"] == {"currently_syncing": "x", "n": 1.0}


def test_a_stream_without_messages_is_not_complete(tmp_path: Path) -> None:
    assert read_tap(tap(tmp_path, ["starting up"])).kinds == ["LOG"]


@pytest.mark.spec("sdk.6")
def test_bookmarks_of_streams_that_are_not_read_are_passed_to_the_next_read(tmp_path: Path) -> None:
    """A tap reads a child stream by way of its parent, whose bookmark says where to go on."""
    marks: Any = [{"bookmarks": {"parents": {"n": n}}} for n in range(2)]
    marks.append({"bookmarks": {"parents": {"n": 1}, "db-users": {"at": 1.50}}})
    connector = tap(tmp_path, [{"type": "STATE", "value": mark} for mark in marks])
    found = read_tap(connector).states
    kept = [State.from_json(one.to_json()) for one in found]
    blobs = [bytes(one.stream.stream_state or b"") for one in kept if one.stream]
    assert blobs == [b"{}", b"{}", b'{"at": 1.5}']

    for stored, given_back in zip(kept, marks, strict=True):
        read_tap(connector, stored)
        own = given_back["bookmarks"].get("db-users", {})
        expected = {"parents": given_back["bookmarks"]["parents"], "db-users": own}
        assert given(tmp_path)["files"]["--state"] == {"bookmarks": expected}


PROPERTIES_ONLY = "usage: tap [-h] -c CONFIG [-s STATE] [-p PROPERTIES] [--properties PROPERTIES]"


@pytest.mark.spec("singer.16")
@pytest.mark.parametrize(
    ("help_", "options"),
    [
        ("usage: tap --config C --catalog C", ["--catalog"]),
        (PROPERTIES_ONLY, ["--properties"]),
        (f"{PROPERTIES_ONLY} [--catalog CATALOG]", ["--catalog", "--properties"]),
        ("!exit 2", ["--catalog"]),
    ],
)
def test_old_taps_get_the_catalog_as_properties(
    help_: str, options: list[str], tmp_path: Path
) -> None:
    connector = tap(tmp_path, [SCHEMA, record(id=1)])
    (tmp_path / "tap" / "help.txt").write_text(help_)
    read_tap(connector)
    files = given(tmp_path)["files"]
    assert sorted(files.keys() - {"--config"}) == options
    for option in options:
        [entry] = files[option]["streams"]
        assert (entry["tap_stream_id"], entry["schema"]["selected"]) == ("db-users", True)


@pytest.mark.spec("singer.21")
def test_streams_with_the_same_record_name_are_refused(tmp_path: Path) -> None:
    both = json.dumps({"streams": [USERS, {**USERS, "tap_stream_id": "crm-users"}]})
    connector = tap(tmp_path, [SCHEMA, record(id=1)], catalog=both)
    failure = failure_of_tap(connector)
    assert isinstance(failure, ConfigError)
    assert "streams 'db-users', 'crm-users' under one name, 'users'" in str(failure)

    one = ConfiguredCatalog(streams=catalog_of(connector).streams[:1])
    assert read_source(connector, catalog=one).kinds[:2] == ["CATALOG", "db-users"]


def rewriting(folder: Path, *lines: Any) -> SingerTap:
    """A tap that has a token which it may use once."""
    command = written(folder / "tap", lines)
    config = {"user": "reader", "refresh_token": {"env": "TAP_TOKEN"}}
    store = folder / "store" / "crm.json"
    return SingerTap(command_spec(command, config, folder / "work", "crm", store=store))


@pytest.mark.spec("singer.23")
@pytest.mark.parametrize("ending", [[], ["!exit 1"]])
def test_a_config_file_that_a_tap_rewrites_is_kept(
    ending: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAP_TOKEN", "first-token")
    renewed = json.dumps({"user": "reader", "refresh_token": "second-token"})
    connector = rewriting(tmp_path, SCHEMA, f"!config {renewed}", record(id=1), *ending)
    catalog = catalog_of(connector)
    with contextlib.suppress(SystemFailure):
        list(connector.read(catalog))

    later = rewriting(tmp_path, "with second-token", "!config {")
    assert later.config["refresh_token"] == "second-token"
    found = list(later.read(catalog))
    assert given(tmp_path)["files"]["--config"]["refresh_token"] == "second-token"
    assert isinstance(found[0], Message) and found[0].log and found[0].log.message == f"with {MASK}"
    assert (
        later.config["refresh_token"] == "second-token"
    )  # a file that was cut off changes nothing

    monkeypatch.setenv("TAP_TOKEN", "third-token")  # a new value from the user wins
    assert rewriting(tmp_path).config["refresh_token"] == "third-token"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("config.unlink(); config.symlink_to('SECRET')", "a part of it is a link"),
        ("config.unlink(); os.link('SECRET', config)", "hard links"),
        ("os.link(config, 'SECRET' + '2')", "hard links"),
        ("config.unlink(); os.mkfifo(config)", "it is no file"),
        ("config.unlink(); config.symlink_to('/dev/zero')", "a part of it is a link"),
        ("config.unlink(); config.mkdir()", "it is no file"),
        ("os.truncate(config, 1 << 40)", "more than 1,048,"),
        ("config.unlink(); os.mkfifo(config); os._exit(1)", "it is no file"),
        ("config.unlink(); config.symlink_to('SECRET'); os.abort()", "a part of it is a link"),
    ],
)
def test_a_tap_makes_its_config_no_way_to_other_files(
    code: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read again after the tap has ended, by this process: no link is followed, nothing waited for."""
    monkeypatch.setenv("TAP_TOKEN", "first-token")
    secret = tmp_path / "secret"
    secret.write_text(json.dumps({"refresh_token": "of-another"}))
    failure = failure_of_tap(rewriting(tmp_path, f"!run {code.replace('SECRET', str(secret))}"))
    assert isinstance(failure, SystemFailure) and reason in str(failure)
    assert "the tap crm refers to the file" in str(failure) and "config.json" in str(failure)
    assert not (tmp_path / "store").exists()
    assert json.loads(secret.read_text()) == {"refresh_token": "of-another"}


def test_a_tap_that_replaces_the_folder_of_its_config_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAP_TOKEN", "first-token")
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text(json.dumps({"refresh_token": "of-another"}))
    code = f"config.parent.rename({str(tmp_path / 'moved')!r}); config.parent.symlink_to({str(other)!r})"
    assert read_tap(rewriting(tmp_path, record(id=1), f"!run {code}")).kinds == ["db-users"]
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("content", ["{", "[]", '{"a":' * 100_000])
def test_a_config_file_that_is_no_object_is_reported(content: str, tmp_path: Path) -> None:
    logged: list[str] = []
    command = written(tmp_path / "tap", [f"!config {content}"])
    connector = SingerTap(
        command_spec(
            command, {}, tmp_path / "work", "crm", on_log=lambda _, text: logged.append(text)
        )
    )
    read_tap(connector)
    assert [line for line in logged if "not a JSON object: its changes are not kept" in line]


def test_a_config_file_that_is_removed_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAP_TOKEN", "first-token")
    assert read_tap(rewriting(tmp_path, record(id=1), "!run config.unlink()")).kinds
    assert not (tmp_path / "store").exists()


def test_whole_records_are_messages(tmp_path: Path) -> None:
    timed = {**record(id=1.0), "time_extracted": "2026-01-02T03:04:05Z"}
    first, second, *_ = read_tap(tap(tmp_path, [timed, record(id=2)]), whole=True)
    assert isinstance(first, Message) and first.record is not None
    assert first.to_json() == (
        b'{"type":"RECORD","record":{"stream":"db-users","data":{"id": 1.0},"emitted_at":1767323045000}}'
    )
    assert isinstance(second, Message) and second.record is not None
    assert isinstance(second.record.emitted_at, int)


# --- how it ends ----------------------------------------------------------------------------------


def test_an_exit_code_is_a_failure_after_the_messages(tmp_path: Path) -> None:
    connector = tap(tmp_path, [SCHEMA, record(id=1), state(1), "!exit 1"])
    messages = connector.read(catalog_of(connector))
    assert [type(next(messages)) for _ in range(3)] == [Message, RawRecord, Message]
    with pytest.raises(SystemFailure, match="`read` of connector hostile ended with exit code 1"):
        next(messages)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            ['!torn {"type":"RECORD","stream":"users","record":{"id"', "!kill"],
            "was terminated by SIGKILL",
        ),
        (['!torn {"type":"RECORD","stream":"users","record":{"id"'], "malformed RECORD"),
        (['{"type":"RECORD","stream":"users","record":' + "[" * 50_000], "too deeply"),
        (['{"type":"STATE"}'], "malformed STATE"),
    ],
)
def test_a_truncated_line_is_an_error(lines: list[str], expected: str, tmp_path: Path) -> None:
    assert expected in str(failure_of_tap(tap(tmp_path, lines)))


def test_lines_that_are_not_messages_do_not_stop_the_read(tmp_path: Path) -> None:
    lines = ["INFO hello", '{"type":"NEWER","stream":"users"}', record(id=1)]
    found = read_tap(tap(tmp_path, lines))
    assert found.kinds == ["LOG", "LOG", "db-users"]
    assert isinstance(found[0], PlainText) and not isinstance(found[1], PlainText)


def test_withheld_lines_are_not_quoted(tmp_path: Path) -> None:
    found = read_tap(tap(tmp_path, ["S3CRET"]), withhold=True)
    assert isinstance(found[0], Message) and found[0].log and "S3CRET" not in found[0].log.message


def test_a_failed_check_reports_the_cause(tmp_path: Path) -> None:
    answer = tap(tmp_path, catalog="!exit 2", config={"password": SECRET}).check()
    assert not answer.succeeded
    assert "`discover` of connector hostile ended with exit code 2" in (answer.message or "")
    assert "catalog cannot be read" in (tap(tmp_path, catalog="hello").check().message or "")


def test_text_before_the_catalog_is_ignored(tmp_path: Path) -> None:
    connector = tap(tmp_path, catalog="hello\n" + json.dumps({"streams": [USERS]}, indent=1))
    assert [each.name for each in connector.discover().streams] == ["db-users"]


def test_a_missing_tap_is_a_config_error(tmp_path: Path) -> None:
    connector = SingerTap(command_spec([str(tmp_path / "none")], {}, tmp_path / "work", "none"))
    with pytest.raises(ConfigError, match="was not found"):
        connector.check()


def test_unsupported_commands_start_no_process(tmp_path: Path) -> None:
    connector = tap(tmp_path)
    with pytest.raises(ConfigError, match="has no `probe`"):
        connector.probe(catalog_of(connector), seconds=5)


# --- settings and secrets -------------------------------------------------------------------------

ABOUT = {
    "settings": {
        "type": "object",
        "required": ["host"],
        "properties": {
            "host": {"type": "string"},
            "pin": {"type": "string", "secret": True},
            "maps": {"anyOf": [{"type": "object"}, "null"]},
        },
    }
}


@pytest.mark.spec("singer.24")
def test_the_config_is_checked_against_the_settings_of_the_tap(tmp_path: Path) -> None:
    connector = tap(tmp_path, config={"pin": 5, "more": 1}, about=json.dumps(ABOUT))
    with pytest.raises(ConfigError, match="'host' is a required property") as failure:
        connector.check()
    assert 'config.pin: is not of type "string"' in str(failure.value)


@pytest.mark.spec("singer.2")
@pytest.mark.parametrize(
    "about",
    [None, "", "hello", "5", "[]", '{"settings":5}', '{"settings":{"type":"strin"}}', "!", "{"],
)
def test_a_tap_without_declared_settings_accepts_any_config(
    about: str | None, tmp_path: Path
) -> None:
    connector = tap(tmp_path, config={"host": 5, "deep": [{"a": None}]}, about=about)
    assert connector.config == {"host": 5, "deep": [{"a": None}]}


def test_a_timeout_of_about_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(singer, "_ABOUT_SECONDS", 0.5)
    with pytest.raises(TransientError, match="exceeded its time limit"):
        _ = tap(tmp_path, about="!sleep 60").config


def test_secrets_are_recognized_by_the_settings_and_by_their_names(tmp_path: Path) -> None:
    config = {
        "host": "h",
        "pin": "p1nn",
        "password": "passw",
        "oauth": [{"clientSecret": "cl1ent", "refresh_token": "refr"}],
        "credentials": {"file": {"literal": "f1le"}},
        "token_ttl": 3600,
        "replication_key": "shown",
        "private_key": "line one\nline two",
        "dbpass": "dbp4ss",
        "alerts": {"webhook": "https://hooks.example.com/T0", "webhookUrl": "h00k"},
        "source": "host=db user=me password=c0nn",
        "bypass": "through",
    }
    connector = tap(
        tmp_path,
        [
            "p1nn passw cl1ent refr f1le 3600 shown line two",
            "dbp4ss https://hooks.example.com/T0 h00k c0nn through",
        ],
        config,
        about=json.dumps(ABOUT),
    )
    found = read_tap(connector)
    assert isinstance(found[0], Message) and found[0].log is not None
    assert found[0].log.message == f"{' '.join([MASK] * 5)} 3600 shown {MASK}"
    assert isinstance(found[1], Message) and found[1].log is not None
    assert found[1].log.message == f"{' '.join([MASK] * 4)} through"


def test_secrets_are_masked_if_the_settings_are_not_a_valid_schema(tmp_path: Path) -> None:
    broken = {"type": "strin", "properties": {"pin": {"writeOnly": True}}}
    connector = tap(tmp_path, ["a p1nn"], {"pin": "p1nn"}, about=json.dumps({"settings": broken}))
    found = read_tap(connector)
    assert isinstance(found[0], Message) and found[0].log and found[0].log.message == f"a {MASK}"


# --- batches --------------------------------------------------------------------------------------


def batch(*files: Path, **encoding: str) -> dict[str, Any]:
    encoded = {"format": "jsonl", "compression": "gzip", **encoding}
    urls = [file.as_uri() for file in files]
    return {"type": "BATCH", "stream": "users", "encoding": encoded, "manifest": urls}


def storage(root: Path) -> dict[str, Any]:
    return {"batch_config": {"storage": {"root": root.as_uri()}}}


@pytest.mark.spec("singer.26")
def test_a_batch_is_read_from_its_files(tmp_path: Path) -> None:
    root = tmp_path / "a folder"
    root.mkdir()
    (root / "1.json.gz").write_bytes(gzip.compress(b'{"id":1}\n{"id": 2.0}\n'))
    (root / "2.json").write_bytes(b'{"id":3}')
    lines = [
        SCHEMA,
        batch(root / "1.json.gz"),
        batch(root / "2.json", compression="none"),
        state(3),
    ]
    found = read_tap(tap(tmp_path, lines, storage(root)))
    rows = [bytes(each.data) for each in found if isinstance(each, RawRecord)]
    assert rows == [b'{"id":1}', b'{"id": 2.0}', b'{"id":3}']
    assert found.kinds[-2:] == ["STATE", "TRACE"]


def test_a_batch_outside_the_folders_is_refused(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside.json"
    root.mkdir()
    outside.write_text('{"id":1}')
    connector = tap(tmp_path, [batch(outside, compression="none")], storage(root))
    failure = failure_of_tap(connector)
    assert isinstance(failure, ConfigError)
    assert str(outside) in str(failure) and str(root) in str(failure)


def test_a_tap_does_not_choose_the_folder_of_its_batches(tmp_path: Path) -> None:
    """Also not by a change of its config that was stored in an earlier sync."""
    root, outside = tmp_path / "root", tmp_path / "outside.json"
    outside.write_text('{"id":1}')
    everything = json.dumps(storage(Path("/")))
    lines = [f"!config {everything}", batch(outside, compression="none")]
    connector = tap(tmp_path, lines, storage(root))
    for _ in range(2):
        assert "in none of the allowed folders" in str(failure_of_tap(connector))
    assert connector.config == json.loads(everything)


@pytest.mark.parametrize(
    "code",
    [
        "os.rename('ROOT', 'ROOT' + '2'); os.symlink('OTHER', 'ROOT')",
        "os.rmdir('ROOT'); os.symlink('OTHER', 'ROOT')",
        "os.symlink('OTHER', 'ROOT/below')",
    ],
)
def test_a_tap_does_not_replace_the_folder_of_its_batches(code: str, tmp_path: Path) -> None:
    root, other = tmp_path / "root", tmp_path / "other"
    other.mkdir()
    (other / "a.json").write_text('{"id":1}')
    name = "below/a.json" if "below" in code else "a.json"
    code = code.replace("ROOT", str(root)).replace("OTHER", str(other))
    lines = [f"!run {code}", batch(root / name, compression="none")]
    failure = failure_of_tap(tap(tmp_path, lines, storage(root)))
    assert "no such file" in str(failure) or "a part of it is a link" in str(failure)


@pytest.mark.parametrize("root", ["/proc/x", "FILE", "FILE/x"])
def test_a_folder_of_batches_that_cannot_be_opened_is_an_error(root: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = Path(root.replace("FILE", str(tmp_path / "file")))
    failure = failure_of_tap(tap(tmp_path, [SCHEMA], storage(path)))
    assert isinstance(failure, ConfigError)
    assert f"the folder of batch files, {path}, cannot be opened" in str(failure)
    assert "batch_config.storage.root" in str(failure)


def test_a_batch_without_a_folder_is_refused(tmp_path: Path) -> None:
    failure = failure_of_tap(tap(tmp_path, [batch(tmp_path / "x.json")]))
    assert isinstance(failure, ConfigError) and "batch_config.storage.root" in str(failure)


def test_a_compression_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(singer_batches, "UNCHECKED_SIZE", 1 << 20)
    monkeypatch.setattr(singer_batches, "MAX_EXPANSION_RATIO", 100)
    root = tmp_path / "root"
    root.mkdir()
    (root / "bomb.json.gz").write_bytes(gzip.compress(b"{}\n" * (4 << 20)))
    failure = failure_of_tap(tap(tmp_path, [batch(root / "bomb.json.gz")], storage(root)))
    assert isinstance(failure, SystemFailure) and "expands to more than 1 MiB" in str(failure)
