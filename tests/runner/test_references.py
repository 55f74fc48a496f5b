"""Values that a config refers to: variables, files and secrets of the project."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from elt_assets.errors import ConfigError, TransientError
from elt_assets.runner import references
from elt_assets.runner.references import MAX_BYTES, resolve_paths, resolve_references

SECRETS = """
from elt_assets.errors import TransientError
calls = []
VALUES = {"token": "t0ken", "login": {"user": "ada", "password": "hunter2"}, "port": 5432}
def read(name):
    calls.append(name)
    if name == "busy":
        raise TransientError("the store of secrets is busy")
    if name == "broken":
        raise ValueError("hunter2 is not a number")
    return b"bytes" if name == "bytes" else VALUES.get(name)
"""
SCHEMA = {
    "type": "object",
    "properties": {
        "port": {"type": "integer"},
        "key_json": {"type": "string"},
        "login": {"type": "object"},
        "either": {"type": ["string", "object"]},
    },
}


@pytest.fixture
def function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The function of secrets of a project; the names with which it is called."""
    name = f"secrets_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(SECRETS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("ELT_SECRETS", f"{name}:read")
    return __import__(name)


@pytest.mark.parametrize(
    ("field", "name", "value"),
    [
        ("token", "token", "t0ken"),
        ("port", "port", 5432),
        ("login", "login", {"user": "ada", "password": "hunter2"}),
        ("either", "login", {"user": "ada", "password": "hunter2"}),
        ("key_json", "login", '{"user": "ada", "password": "hunter2"}'),
        ("key_json", "port", "5432"),
    ],
)
def test_a_secret_has_the_type_that_the_specification_asks_for(
    function: Any, field: str, name: str, value: Any
) -> None:
    config, secrets = resolve_references({field: {"secret": name}}, schema=SCHEMA)
    assert config == {field: value} and type(config[field]) is type(value)
    assert secrets and ("hunter2" in "".join(secrets)) == (name == "login")


def test_the_function_is_called_once_for_each_name_in_an_hour(
    function: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"a": {"secret": "token"}, "b": [{"secret": "token"}, {"secret": "login"}]}
    for _ in range(3):
        resolved, _ = resolve_references(config)
        resolved["b"][1]["password"] = "changed by the caller"
    assert function.calls == ["token", "login"]
    monkeypatch.setattr(references, "_LIFETIME", -1.0)
    assert resolve_references(config)[0]["b"][1]["password"] == "hunter2"
    assert function.calls[2:] == ["token", "token", "login"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent", r"config\.a\[0\] refers to the secret absent, and .*:read has no secret"),
        ("broken", r"config\.a\[0\] refers to the secret broken, and .*:read raised a ValueError"),
        ("bytes", r"config\.a\[0\] refers to the secret bytes, .* returned a bytes"),
    ],
)
def test_a_secret_that_cannot_be_read_is_reported_with_its_place_and_no_value(
    function: Any, name: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as failure:
        resolve_references({"a": [{"secret": name}]})
    assert failure.value.guidance and "hunter2" not in str(failure.value)


def test_the_function_may_ask_for_a_retry(function: Any) -> None:
    with pytest.raises(TransientError, match=r"config\.a refers to the secret busy: the store"):
        resolve_references({"a": {"secret": "busy"}})


def test_a_secret_needs_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ELT_SECRETS", raising=False)
    with pytest.raises(ConfigError, match=r"config\.a refers to the secret b, but .*\n.*literal"):
        resolve_references({"a": {"secret": "b"}})
    monkeypatch.setenv("ELT_SECRETS", "no_such_module:read")
    with pytest.raises(ConfigError, match="the setting `secrets`: 'no_such_module:read'"):
        resolve_references({"a": {"secret": "b"}})


@pytest.mark.parametrize(
    ("content", "field", "value"),
    [
        ("p w\n", "password", "p w"),
        ("p\n\n", "password", "p\n"),
        ("p\r\n", "password", "p"),
        ("", "password", ""),
        ("5432\n", "port", 5432),
        ('{"user": "ada"}\n', "login", {"user": "ada"}),
    ],
)
def test_a_file_is_read_without_the_line_break_at_its_end(
    tmp_path: Path, content: str, field: str, value: Any
) -> None:
    (tmp_path / "secret").write_bytes(content.encode())
    config = resolve_paths({"a": [{"x": {"file": "secret"}}], field: {"file": "secret"}}, tmp_path)
    resolved, secrets = resolve_references(config, schema=SCHEMA)
    assert resolved[field] == value
    assert isinstance(value, dict) or str(value) in secrets


def test_a_file_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary").write_bytes(b"hunter2\xff")
    (tmp_path / "large").write_bytes(b"x" * (MAX_BYTES + 1))
    os.mkfifo(tmp_path / "pipe")
    problems = {
        "absent": "No such file or directory",
        "folder": "it is not a file",
        "pipe": "it is not a file",
        "binary": "it is not UTF-8 text",
        "large": "it has more than 1 MiB",
        "null\0": "it is not a path",
    }
    for name, reason in problems.items():
        with pytest.raises(
            ConfigError, match=rf"config\.a refers to the file .*: {reason}"
        ) as failure:
            resolve_references(resolve_paths({"a": {"file": name}}, tmp_path))
        assert "hunter2" not in str(failure.value)


def test_the_whole_config_may_be_a_reference(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"port": 1}')
    (tmp_path / "text").write_text("hunter2")
    config, _ = resolve_references({"file": str(tmp_path / "config.json")})
    assert config == {"port": 1}
    with pytest.raises(ConfigError, match="config must be of type object") as failure:
        resolve_references({"file": str(tmp_path / "text")})
    assert "hunter2" not in str(failure.value)


def test_other_objects_are_no_references(tmp_path: Path) -> None:
    config = {
        "a": {"file": "x", "secret": "y"},
        "b": {"vault": "x"},
        "c": {"secret": ["x"]},
        "d": {"literal": {"secret": "x"}},
        "e": {"literal": {"file": "x"}},
    }
    resolved, secrets = resolve_references(resolve_paths(config, tmp_path))
    assert resolved == {**config, "d": {"secret": "x"}, "e": {"file": "x"}} and not secrets


@pytest.mark.parametrize(
    ("text", "field", "value", "secret"),
    [
        ("{{ env.VALUE }}", "a", "5432", ["5432"]),
        ("{{env('VALUE')}}", "port", 5432, ["5432"]),
        ("{{- env( \"VALUE\" , 'x') -}}", "port", 5432, ["5432"]),
        ("{{ env('NOT_SET', 'a b') }}", "a", "a b", []),
        ("{{ env('NOT_SET', '') }}", "a", "", []),
        ("{{ env('NOT_SET', 8080) }}", "port", 8080, []),
        ("x:{{ env.VALUE }}@{{ env('NOT_SET', 'h') }}/{{ env.OTHER }}", "a", "x:5432@h/o", ["5432", "o"]),
        ("{{ env.VALUE }}-{{ config['x'] }}", "a", "5432-{{ config['x'] }}", ["5432"]),
        ("{{ env.LOGIN }}", "login", {"user": "ada"}, ['{"user": "ada"}', "ada"]),
        ("{{ environment.x }} {{ config.env.X }}", "a", "{{ environment.x }} {{ config.env.X }}", []),
    ],
)  # fmt: skip
def test_a_template_of_a_variable_is_a_reference(
    text: str, field: str, value: Any, secret: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in {"VALUE": "5432", "OTHER": "o", "LOGIN": '{"user": "ada"}'}.items():
        monkeypatch.setenv(name, content)
    config, secrets = resolve_references({"x": [{field: text}], field: text}, schema=SCHEMA)
    assert config[field] == value and type(config[field]) is type(value)
    assert secrets[len(secrets) - len(secret) :] == secret
    assert resolve_references({"literal": {"a": text}}) == ({"a": text}, [])


def test_a_template_of_a_variable_that_is_not_set_or_reserved_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ConfigError, match=r"config\.a\[0\] refers to .* NOT_SET, which is not set"):
        resolve_references({"a": ["x {{ env.NOT_SET }}"]})
    monkeypatch.setenv("ELT_HASH_SALT", "hunter2")
    for text in ("{{ env.ELT_HASH_SALT }}", "{{ env('ELT_OTHER', 'x') }}"):
        with pytest.raises(ConfigError, match=r"config\.a refers to the environment variable ELT_"):
            resolve_references({"a": text})
    monkeypatch.setenv("VALUE", "hunter2")
    with pytest.raises(
        ConfigError, match="value of the environment variable VALUE is not"
    ) as error:
        resolve_references({"port": "{{ env.VALUE }}"}, schema=SCHEMA)
    assert "hunter2" not in str(error.value)
