"""The vault: what its keys may be, and what it does not let pass."""

from __future__ import annotations

import base64
import shutil
from pathlib import Path

import pytest

from elt_assets import paths
from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.runner.vault import Vault, hash_salt, open_vault

FIRST, SECOND = (base64.urlsafe_b64encode(bytes([n]) * 32).decode() for n in (1, 2))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("ELT_HASH_SALT", "ELT_VAULT", "ELT_VAULT_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def vault() -> Vault:
    opened = open_vault()
    assert opened is not None
    return opened


def configure(root: Path, text: str) -> None:
    (root / "pyproject.toml").write_text(f"[tool.elt]\n{text}\n")


def test_an_entry_is_encrypted_and_its_key_can_be_replaced(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(root, 'vault = "vault"\nvault_key = {env = "OUR_KEY"}')
    monkeypatch.setenv("OUR_KEY", FIRST)
    entry = vault().entry("config", "crm.json")
    assert entry.read() is None
    entry.change(lambda _: b"hunter2")
    files = [path for path in (root / "vault").rglob("*") if path.is_file()]
    assert len(files) == 1 and b"hunter2" not in files[0].read_bytes()
    monkeypatch.setenv("OUR_KEY", f"{SECOND}, {FIRST}")
    assert (
        vault().entry("config", "crm.json").change(lambda content: (content or b"") + b"!")
        == b"hunter2!"
    )
    monkeypatch.setenv("OUR_KEY", SECOND)
    assert vault().entry("config", "crm.json").read() == b"hunter2!"
    monkeypatch.setenv("OUR_KEY", FIRST)
    entry = vault().entry("config", "crm.json")
    with pytest.raises(ConfigError, match="cannot be decrypted") as error:
        entry.read()
    assert "hunter" not in str(error.value) and FIRST not in str(error.value)
    with pytest.raises(ConfigError, match="cannot be decrypted"):
        entry.change(lambda _: b"lost")


def test_reading_with_a_new_key_replaces_the_former_one(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(root, 'vault = "vault"')
    monkeypatch.setenv("ELT_VAULT_KEY", FIRST)
    vault().entry("hash_salt").change(lambda _: b"salt")
    monkeypatch.setenv("ELT_VAULT_KEY", f"{SECOND} {FIRST}")
    for _ in range(2):
        assert vault().entry("hash_salt").read() == b"salt"
    assert len(list((root / "vault" / "hash_salt").iterdir())) == 2  # written again once
    monkeypatch.setenv("ELT_VAULT_KEY", SECOND)
    assert vault().entry("hash_salt").read() == b"salt"


def test_an_entry_in_the_place_of_another_is_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(root, 'vault = "vault"')
    monkeypatch.setenv("ELT_VAULT_KEY", FIRST)
    vault().entry("config", "crm.json").change(lambda _: b"hunter2")
    shutil.copytree(root / "vault" / "config" / "crm.json", root / "vault" / "config" / "erp.json")
    with pytest.raises(ConfigError, match=r"erp\.json cannot be decrypted"):
        vault().entry("config", "erp.json").read()


@pytest.mark.parametrize(
    ("text", "key", "message"),
    [
        ("", None, r"the setting `vault` is set, and .*ELT_VAULT_KEY"),
        ("", "hunter2", "is not a key of the vault"),
        ("", f"{FIRST},hunter2", "is not a key of the vault"),
        ('vault_key = {env = "OUR_KEY", file = "x"}', None, "is not a reference"),
        ('vault_key = {env = "OUR_KEY"}', None, "vault_key refers to .* OUR_KEY, which is not set"),
        ('vault_key = {file = "no_key"}', None, "vault_key refers to the file /.*no_key"),
        ('vault_key = "hunter2"', None, r"\[tool.elt\] vault_key is a text"),
    ],
)
def test_a_vault_without_a_key_is_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch, text: str, key: str | None, message: str
) -> None:
    configure(root, f'vault = "vault"\n{text}')
    if key is not None:
        monkeypatch.setenv("ELT_VAULT_KEY", key)
    with pytest.raises(ConfigError, match=message) as error:
        open_vault()
    assert error.value.guidance and "hunter2" not in str(error.value)
    assert FIRST not in str(error.value) and not (root / "vault").exists()


def test_a_key_in_a_file_is_relative_to_the_project(root: Path) -> None:
    (root / "key").write_text(f"{FIRST}\n")
    configure(root, 'vault = "vault"\nvault_key = {file = "key"}')
    assert vault().entry("x").change(lambda _: b"y") == b"y"


def test_a_vault_that_cannot_be_written_is_an_error(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(root, 'vault = "vault"')
    monkeypatch.setenv("ELT_VAULT_KEY", FIRST)
    (root / "vault").write_text("")
    with pytest.raises(SystemFailure, match="cannot be written: Not a directory"):
        vault().entry("x").change(lambda _: b"y")


def test_the_vault_takes_over_the_salt_of_the_home(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    salt = hash_salt()
    assert salt == paths.hash_salt()
    configure(root, 'vault = "vault"')
    monkeypatch.setenv("ELT_VAULT_KEY", FIRST)
    assert hash_salt() == salt
    monkeypatch.setenv("DAGSTER_HOME", str(root / "other"))
    assert hash_salt() == vault().entry(paths.SALT_FILE).read() == salt
    assert not (root / "other").exists()
    monkeypatch.setenv("ELT_HASH_SALT", "of the variable")
    assert hash_salt() == b"of the variable"
