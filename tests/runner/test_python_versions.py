"""The Python of a package's environment, and its installation by uv."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from elt_assets.errors import ConfigError
from elt_assets.runner.packages import Installation, install, is_installed, list_installed, sweep
from elt_assets.runner.uv import uv_environment
from tests.connection.test_connection import declare, load, refusal
from tests.runner.test_package import index, pip, wheel

__all__ = ["index", "pip"]
OWN = f"{sys.version_info.major}.{sys.version_info.minor}"
PRINT_VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"


def other_pythons() -> dict[str, str]:
    """The interpreters of this machine of other versions than this one, which can make an environment."""
    places = [Path("/usr/bin"), Path("/usr/local/bin"), *Path.home().glob(".pyenv/versions/*/bin")]
    versions = (f"3.{minor}" for minor in range(10, 15))
    return {
        version: str(place / f"python{version}")
        for version in versions
        for place in places
        if version != OWN and (place / f"python{version}").exists()
    }


def _installer_of(program: Path) -> str:
    """The program that installed the package `source-x`, as the environment records it."""
    [file] = program.parents[1].glob("lib/python*/site-packages/source_x-1.0.dist-info/INSTALLER")
    return file.read_text().strip()


def test_uv_installs_what_pip_would(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel(index, "source-x", ("source-x",))
    program = install("source-x==1.0", tmp_path / "home")
    assert _installer_of(program) == "uv"
    assert subprocess.check_output([program], text=True) == "source-x\n"
    (tmp_path / "constraints").touch()
    monkeypatch.setenv("PIP_CONSTRAINT", str(tmp_path / "constraints"))  # uv does not have it
    assert _installer_of(install("source-x==1.0", tmp_path / "other")) == "pip"
    monkeypatch.delenv("PIP_CONSTRAINT")
    lock = tmp_path / "lock"
    [file] = index.glob("*.whl")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    for options, name in (("", "uv"), (f"--find-links {index}\n", "pip")):
        lock.write_text(f"{options}source-x==1.0 --hash=sha256:{digest}\n")
        program = install("source-x==1.0", tmp_path / name, Installation(lock_file=lock))
        assert _installer_of(program) == name
    built = Installation(source_distributions=["source-y"])
    assert _installer_of(install("source-x==1.0", tmp_path / "home", built)) == "pip"


def test_a_uv_that_fails_is_followed_by_pip(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel(index, "source-x", ("source-x",))
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "nowhere"))  # uv's own setting is kept
    assert _installer_of(install("source-x==1.0", tmp_path / "home")) == "pip"


def test_settings_of_pip_hold_for_uv(tmp_path: Path) -> None:
    config = tmp_path / ".config" / "pip" / "pip.conf"
    config.parent.mkdir(parents=True)
    config.write_text(
        "[global]\nindex_url = https://a.example/simple\nextra-index-url =\n  https://b.example/simple\n"
        "  https://c.example/simple\ncert = /etc/ca.pem\n[install]\nfind-links = /wheels\n"
        "[list]\nformat = json\n"
    )
    variables = {"HOME": str(tmp_path), "XDG_CONFIG_DIRS": str(tmp_path), "PIP_TIMEOUT": "7"}
    translated = {
        "UV_DEFAULT_INDEX": "https://a.example/simple",
        "UV_INDEX": "https://b.example/simple https://c.example/simple",
        "UV_FIND_LINKS": "/wheels",
        "SSL_CERT_FILE": "/etc/ca.pem",
        "UV_HTTP_TIMEOUT": "7",
    }
    assert uv_environment(variables) == {**variables, **translated}
    own = {**variables, "UV_DEFAULT_INDEX": "https://uv.example/simple"}
    assert uv_environment(own) == {**translated, **own}
    for key in ("PIP_CONSTRAINT", "PIP_ONLY_BINARY", "PIP_KEYRING_PROVIDER"):
        assert uv_environment({**variables, key: "x"}) is None
    config.write_text("no section")
    assert uv_environment(variables) is None
    assert uv_environment({**variables, "PIP_CONFIG_FILE": "/dev/null"}) is not None


def test_a_package_is_installed_for_the_python_of_its_connection(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = other_pythons()
    if not others:
        pytest.skip("this machine has no second Python")
    wheel(index, "source-x", ("source-x",))
    [(version, python), *_] = others.items()
    home, programs = tmp_path / "home", tmp_path / "programs"
    programs.mkdir()
    (programs / f"python{version}").symlink_to(python)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    for name in (version, python):
        options = Installation(python=name)
        assert not is_installed("source-x==1.0", home, options)
        program = install("source-x==1.0", home, options)
        command = [str(program.with_name("python")), "-c", PRINT_VERSION]
        assert subprocess.check_output(command, text=True).strip() == version
        assert subprocess.check_output([program], text=True) == "source-x\n"
        assert is_installed("source-x==1.0", home, options)
    assert not is_installed("source-x==1.0", home)
    assert len(list(home.glob("source-x==1.0-*"))) == 2
    assert list_installed(home) == ["source-x==1.0"]
    assert sweep(home, -60) == 2


@pytest.mark.parametrize("has_uv", [True, False])
def test_a_python_that_is_not_there_is_named(
    has_uv: bool, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program of that name and of another version is not taken for it."""
    wheel(index, "source-x", ("source-x",))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3.99").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    if not has_uv:
        shutil.copy(sys.executable, tmp_path / "bin" / "python")
        monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    with pytest.raises(ConfigError, match=r"no Python 3\.99 on this machine") as failure:
        install("source-x==1.0", tmp_path / "home", Installation(python="3.99"))
    assert ("uv could not bring it" in str(failure.value)) is has_uv
    assert ("or install uv" in str(failure.value)) is not has_uv
    with pytest.raises(ConfigError, match="is not an interpreter that can be started"):
        install("source-x==1.0", tmp_path / "home", Installation(python=str(tmp_path / "none")))


def test_the_python_of_a_connection_is_a_version_or_a_path(tmp_path: Path) -> None:
    source = {"package": "source-x==1.0", "python": "3.12", "install": {"seconds": 5}}
    loaded = load(tmp_path, declare(source=source)).source.installation
    assert loaded == Installation(python="3.12", seconds=5)
    relative = load(tmp_path, declare(source={**source, "python": "bin/python3"})).source
    assert relative.python == str(tmp_path / "bin" / "python3")
    refusals: list[tuple[dict[str, Any], str]] = [
        (
            {**source, "python": yaml.safe_load("3.10")},
            'python: write a version in quotes, as "3.12"',
        ),
        ({**source, "python": "2.7"}, "python: write a version"),
        ({**source, "python": "python3.12"}, "python: write a version"),
        (
            {"connector": "faker", "python": "3.12"},
            "`python` is only for what is installed from PyPI",
        ),
        ({"tap": ["tap-x"], "python": "3.12"}, "`python` is only for what is installed from PyPI"),
        (
            {"package": "source-x==1.0", "install": {"python": "3.12"}},
            "write it beside the package",
        ),
    ]
    for settings, message in refusals:
        assert message in refusal(tmp_path, declare(source=settings))
