"""A connector that changes its own config: what is kept of it, for whom, and what is shown."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.protocol.messages import Message
from elt_assets.runner.config import (
    ABSENT,
    Change,
    ConfigStore,
    apply_changes,
    differences,
    merge_values,
)
from elt_assets.runner.connector import Connector
from tests.programs.hostile_source import gone, hostile_source
from tests.support.source import read_source

SPECIFICATION = {
    "type": "object",
    "required": ["token"],
    "properties": {
        "token": {"type": "string", "airbyte_secret": True},
        "start_date": {"type": "string"},
        "pin": {"type": "integer", "airbyte_secret": True},
        "auth": {"type": "object", "properties": {"refresh": {}}},
    },
}
CONFIG = {
    "token": "first",
    "start_date": "2026-01-01",
    "auth": {"refresh": "re-0", "kind": "oauth"},
}
SHOW = 'record(json.load(open(files["--config"])))\n'
CONTROL = (
    'say("CONTROL", control={{"type": "CONNECTOR_CONFIG", "emitted_at": 1.5, "note": "S3CRET",'
    ' "connectorConfig": {{"config": {}}}}})\n'
)


def change(**config: Any) -> str:
    """A line of the script of a source that changes its config."""
    return CONTROL.format(repr(config))


def source(
    folder: Path, script: str, config: Mapping[str, Any] = CONFIG, *, store: Path | None = None
) -> Connector:
    path = folder / "home" / "config" / "shop.json" if store is None else store
    return hostile_source(folder, script, config, SPECIFICATION, store=path)


def test_an_update_is_merged_and_passed_to_the_next_process(tmp_path: Path) -> None:
    auth = {"refresh": "re-1", "kind": "oauth"}
    read_source(source(tmp_path, change(token="second", auth=auth)))
    [config] = read_source(source(tmp_path, SHOW)).records
    assert config == {**CONFIG, "token": "second", "auth": auth}


@pytest.mark.spec("protocol.163")
def test_only_updated_properties_are_replaced(tmp_path: Path) -> None:
    read_source(source(tmp_path, change(auth={"token": "t"})))
    assert source(tmp_path, "").config == {**CONFIG, "auth": {"token": "t"}}
    read_source(source(tmp_path, change(auth={})))
    assert source(tmp_path, "").config == {**CONFIG, "auth": {}}


@pytest.mark.parametrize("mask", ["**********", "****", "***"])
def test_a_mask_is_not_stored(mask: str, tmp_path: Path) -> None:
    read_source(source(tmp_path, change(token="second")))
    for update in ({"token": mask}, {"auth": {"refresh": mask, "kind": "oauth"}}):
        with pytest.raises(SystemFailure, match=r"to a mask, and the credential") as caught:
            read_source(source(tmp_path, change(**update)))
        assert "the stored config is unchanged" in (caught.value.guidance or "")
    assert source(tmp_path, "").config == {**CONFIG, "token": "second"}
    same = {**CONFIG, "token": mask}  # a credential that looks like one, and is the user's own
    store = tmp_path / "own.json"
    read_source(source(tmp_path, change(token=mask, start_date="2027-01-01"), same, store=store))
    assert source(tmp_path, "", same, store=store).config == {**same, "start_date": "2027-01-01"}


FORMS = {
    "type": "object",
    "properties": {
        "credentials": {
            "oneOf": [
                {"properties": {name: {"type": "string"}}, "required": [name], "additionalProperties": False}
                for name in ("key", "token")
            ]
        }
    },
}  # fmt: skip


@pytest.mark.spec("protocol.163")
def test_a_connector_may_change_the_form_of_its_credentials(tmp_path: Path) -> None:
    def connector(script: str) -> Connector:
        config = {"credentials": {"key": "k"}}
        return hostile_source(tmp_path, script, config, FORMS, store=tmp_path / "shop.json")

    read_source(connector(change(credentials={"token": "t"})))
    assert connector("").config == {"credentials": {"token": "t"}}
    with pytest.raises(SystemFailure, match="changed its config to one that violates"):
        read_source(connector(change(credentials={"key": "k", "token": "t"})))
    assert connector("").config == {"credentials": {"token": "t"}}


def test_unchanged_values_stay_references_to_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {
        "token": {"env": "SHOP_TOKEN"},
        "auth": {"refresh": "re-0", "secret": {"env": "SHOP_SECRET"}},
        "accounts": [{"key": {"env": "SHOP_SECRET"}, "at": 1}],
    }
    monkeypatch.setenv("SHOP_TOKEN", "tok-1")
    monkeypatch.setenv("SHOP_SECRET", "sec-1")
    sent = {"refresh": "re-1", "secret": "sec-1"}
    accounts = [{"key": "sec-1", "at": 2}]
    read_source(source(tmp_path, change(token="tok-1", auth=sent, accounts=accounts), config))
    stored = (tmp_path / "home" / "config" / "shop.json").read_text()
    assert "re-1" in stored and "sec-1" not in stored and "tok-1" not in stored
    monkeypatch.setenv("SHOP_SECRET", "sec-2")
    assert source(tmp_path, "", config).config == {
        "token": "tok-1",
        "auth": {"refresh": "re-1", "secret": "sec-2"},
        "accounts": [{"key": "sec-2", "at": 2}],
    }


def test_an_update_cannot_refer_to_an_environment_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_SECRET", "sec-1")
    read_source(
        source(
            tmp_path,
            change(auth={"refresh": {"env": "SHOP_SECRET"}}),
            {"token": "first"},
            store=tmp_path / "s",
        )
    )
    config = source(tmp_path, "", {"token": "first"}, store=tmp_path / "s").config
    assert config["auth"]["refresh"] == {"env": "SHOP_SECRET"}


@pytest.mark.parametrize("verb", ["check", "discover"])
def test_check_and_discover_may_update_the_config(verb: str, tmp_path: Path) -> None:
    answers = """
if verb == "check": say("CONNECTION_STATUS", connectionStatus={"status": "SUCCEEDED"})
if verb == "discover": say("CATALOG", catalog={"streams": []})
"""
    connector = source(tmp_path, change(token="second") + answers)
    getattr(connector, verb)()
    assert connector.config["token"] == "second"
    assert source(tmp_path, "").config["token"] == "second"


def test_repeated_updates_are_combined(tmp_path: Path) -> None:
    read_source(source(tmp_path, change(token="b", auth={"refresh": "re-1"}) + change(token="c")))
    read_source(source(tmp_path, change(auth={"refresh": "re-1", "new": {"deep": 1}})))
    read_source(source(tmp_path, change(auth={"refresh": "re-1", "new": {"deep": 2}}, pin=5)))
    auth = {"refresh": "re-1", "new": {"deep": 2}}
    assert source(tmp_path, "").config == {**CONFIG, "token": "c", "auth": auth, "pin": 5}


KILLED = """
import os, pathlib
from tests.runner.test_config_updates import SHOW, change, source
from tests.support.source import USERS
script = change(token="rotated") + "time.sleep(60)"
for message in source(pathlib.Path({folder!r}), script).read(USERS):
    os.kill(os.getpid(), 9)
"""


@pytest.mark.spec("protocol.160")
def test_a_rotated_credential_survives_an_immediate_crash(tmp_path: Path) -> None:
    with pytest.raises(SystemFailure, match="SIGKILL"):
        read_source(source(tmp_path, change(token="once") + "os.kill(os.getpid(), 9)"))
    assert source(tmp_path, "").config["token"] == "once"
    done = subprocess.run([sys.executable, "-c", KILLED.format(folder=str(tmp_path))], check=False)
    assert done.returncode == -9
    assert read_source(source(tmp_path, SHOW)).records[0]["token"] == "rotated"


@pytest.mark.spec("protocol.162")
def test_an_update_that_violates_the_specification_fails_the_sync(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = f"open({str(pid)!r}, 'w').write(str(os.getpid()))\n{change(token='second')}" + (
        change(token=55512, pin="p4ss-word") + "time.sleep(60)"
    )
    connector = source(tmp_path, script)
    with pytest.raises(SystemFailure, match="changed its config to one that violates") as failure:
        read_source(connector)
    text = str(failure.value)
    assert 'config.token: is not of type "string"' in text
    assert 'config.pin: is not of type "integer"' in text
    assert "55512" not in text and "p4ss" not in text
    assert gone(int(pid.read_text()))
    assert connector.config == {**CONFIG, "token": "second"}


def test_a_value_that_the_user_edits_takes_precedence_over_its_update(tmp_path: Path) -> None:
    auth = {"refresh": "re-1", "kind": "oauth"}
    read_source(source(tmp_path, change(token="second", auth=auth)))
    edited = {**CONFIG, "token": "mine"}
    assert source(tmp_path, "", edited).config == {**edited, "auth": auth}
    read_source(source(tmp_path, change(token="third"), edited))
    assert source(tmp_path, "", edited).config["token"] == "third"
    plain = {"token": "mine", "auth": "none"}  # not even a place for it any more
    with pytest.raises(ConfigError, match=r"config\.auth"):
        _ = source(tmp_path, "", plain).config


def test_a_changed_environment_variable_takes_precedence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"token": {"env": "SHOP_TOKEN"}}
    monkeypatch.setenv("SHOP_TOKEN", "first")
    read_source(source(tmp_path, change(token="second"), config))
    assert source(tmp_path, "", config).config == {"token": "second"}
    monkeypatch.setenv("SHOP_TOKEN", "renewed")
    assert source(tmp_path, "", config).config == {"token": "renewed"}


def test_fields_that_each_read_sets_are_not_stored(tmp_path: Path) -> None:
    """A connector may send all of its config; a window's or a partition's bounds are not its change."""
    whole = SHOW + CONTROL.format('{**json.load(open(files["--config"])), "token": "second"}')
    read_source(source(tmp_path, whole, {**CONFIG, "start_date": "2026-05-05"}))
    [config] = read_source(source(tmp_path, SHOW, {**CONFIG, "start_date": "2026-06-06"})).records
    assert (config["token"], config["start_date"]) == ("second", "2026-06-06")


@pytest.mark.usefixtures("any_umask")
def test_the_file_is_private_and_has_only_updated_values(tmp_path: Path) -> None:
    (tmp_path / "home" / "config").mkdir(parents=True)  # open to others, if the umask is 0
    read_source(source(tmp_path, change(token="second"), {**CONFIG, "pin": 918273}))
    folder = tmp_path / "home" / "config"
    path = folder / "shop.json"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = path.read_text()
    assert "second" in text
    assert not any(unchanged in text for unchanged in ("first", "918273", "re-0"))
    assert sorted(each.name for each in folder.iterdir()) == ["shop.json", "shop.lock"]


def test_no_file_is_written_without_an_update(tmp_path: Path) -> None:
    read_source(source(tmp_path, change() + change(token="first")))
    assert not (tmp_path / "home").exists()


def test_updated_values_are_masked(tmp_path: Path) -> None:
    script = change(token="tok-2", auth={"refresh": "re-2"}, pin=424242) + (
        "print(json.load(open(files['--config']))['token'], 'tok-2 re-2 424242')\n"
    )
    [control, log] = read_source(source(tmp_path, script))
    assert isinstance(control, Message) and isinstance(log, Message)
    assert control.type == "CONTROL" and control.control is not None
    assert json.loads(control.to_json())["control"]["connectorConfig"] == {"config": {}}
    shown = control.to_json().decode() + log.to_json().decode()
    for secret in ("tok-2", "re-2", "424242", "S3CRET", "first"):
        assert secret not in shown
    later = read_source(source(tmp_path, "print('tok-2 re-2 424242')"))
    assert isinstance(later[0], Message) and later[0].log
    assert later[0].log.message == "**** **** ****"


@pytest.mark.spec("protocol.164")
def test_an_unknown_kind_of_control_message_is_logged_and_not_passed_on(tmp_path: Path) -> None:
    script = 'say("CONTROL", control={"type": "NEWER", "emitted_at": 1, "token": "tok-2"})'
    [message] = read_source(source(tmp_path, script))
    assert isinstance(message, Message) and message.log
    assert "ignored a control message of the unknown type 'NEWER'" in message.log.message
    assert "tok-2" not in message.to_json().decode()


def test_an_update_without_a_config_is_an_error(tmp_path: Path) -> None:
    script = 'say("CONTROL", control={"type": "CONNECTOR_CONFIG", "emitted_at": 1})'
    with pytest.raises(SystemFailure, match="sent a CONNECTOR_CONFIG message without a config"):
        read_source(source(tmp_path, script))


def test_without_a_store_an_update_is_kept_in_memory(tmp_path: Path) -> None:
    connector = hostile_source(tmp_path, change(token="second"), CONFIG, SPECIFICATION)
    read_source(connector)
    assert connector.config["token"] == "second"
    again = hostile_source(tmp_path, "", CONFIG, SPECIFICATION)
    assert again.config["token"] == "first"


def test_an_update_that_cannot_be_stored_fails_the_sync(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    connector = source(tmp_path, change(token="second"), store=tmp_path / "file" / "shop.json")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_source(connector)
    (tmp_path / "shop.lock").mkdir()
    connector = source(tmp_path, change(token="tok-2"), store=tmp_path / "shop.json")
    with pytest.raises(SystemFailure, match="cannot be stored in") as failure:
        read_source(connector)
    assert "tok-2" not in str(failure.value) and failure.value.guidance


@pytest.mark.parametrize("text", ["", "{", '{"changes": 5}', "\xff"])
def test_a_damaged_file_is_reported_with_its_path(text: str, tmp_path: Path) -> None:
    path = tmp_path / "shop.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ConfigError, match=r"shop\.json, cannot be read") as failure:
        _ = source(tmp_path, "", store=path).config
    assert failure.value.guidance


def test_concurrent_updates_are_not_lost(tmp_path: Path) -> None:
    path, written = tmp_path / "shop.json", {"token": "first"}

    def rotate(number: int) -> None:
        store = ConfigStore(path)
        for round_ in range(5):
            store.keep(written, {(f"name-{number}",): round_, ("token",): f"{number}"})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(rotate, range(8)))
    config = apply_changes(written, ConfigStore(path).changes(written))
    assert {name: config[name] for name in config if name != "token"} == {
        f"name-{number}": 4 for number in range(8)
    }


values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from([0.0, 1.0, "", "x"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=5,
)
configs = st.dictionaries(st.sampled_from("abc"), values)


@given(configs, configs)
def test_a_changed_config_can_be_rebuilt_from_its_differences(old: Any, update: Any) -> None:
    new = merge_values(old, update)
    changes = [
        Change(place, None if value is ABSENT else value, "", value is ABSENT)
        for place, value in differences(old, new)
    ]
    rebuilt = apply_changes(old, changes)
    assert json.dumps(rebuilt, sort_keys=True) == json.dumps(new, sort_keys=True)
    assert not list(differences(new, new))


@given(configs, st.lists(configs, max_size=4))
def test_a_store_keeps_any_sequence_of_updates(written: Any, updates: list[Any]) -> None:
    store, config = ConfigStore(None), dict(written)
    for update in updates:
        new = merge_values(config, update)
        store.keep(written, dict(differences(config, new)))
        config = new
    kept = apply_changes(written, store.changes(written))
    assert json.dumps(kept, sort_keys=True) == json.dumps(config, sort_keys=True)
