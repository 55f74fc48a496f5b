"""The Python of a package's environment, and its installation by uv."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from elt_assets.errors import ConfigError, EltError
from elt_assets.runner.packages import Installation, install, is_installed, list_installed, sweep
from elt_assets.runner.uv import uv_settings
from tests.connection.test_connection import declare, load, refusal
from tests.runner.test_package import index, wheel

__all__ = ["index"]
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


def test_the_settings_of_pip_decide_what_uv_installs(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The packages are found at all because `index` sets `PIP_FIND_LINKS`."""
    wheel(index, "source-x", ("source-x",))
    program = install("source-x==1.0", tmp_path / "home")
    [file] = program.parents[1].glob("lib/python*/site-packages/source_x-1.0.dist-info/INSTALLER")
    assert file.read_text().strip() == "uv"
    assert subprocess.check_output([program], text=True) == "source-x\n"
    (tmp_path / "constraints").write_text("source-x==2.0\n")
    (tmp_path / "pip.conf").write_text("[install]\nconstraint = constraints\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIP_CONFIG_FILE", "pip.conf")
    with pytest.raises(ConfigError, match="its requirements exclude each other"):
        install("source-x==1.0", tmp_path / "other")
    (tmp_path / "constraints").write_text("source-x==1.0\n")
    assert install("source-x==1.0", tmp_path / "other").exists()
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "nowhere"))  # uv's own setting is kept
    with pytest.raises(EltError, match=r"installing source-x==1\.0 failed"):
        install("source-x==1.0", tmp_path / "third")


def test_a_lock_file_may_name_its_index(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel(index, "source-x", ("source-x",))
    [file] = index.glob("*.whl")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    lock = tmp_path / "lock"
    lock.write_text(f"--find-links {index}\nsource-x==1.0 --hash=sha256:{digest}\n")
    monkeypatch.delenv("PIP_FIND_LINKS")
    assert install("source-x==1.0", tmp_path / "home", Installation(lock_file=lock)).exists()


def test_settings_of_pip_hold_for_uv(tmp_path: Path) -> None:
    config = tmp_path / ".config" / "pip" / "pip.conf"
    config.parent.mkdir(parents=True)
    config.write_text(
        "[global]\nindex_url = https://a.example/simple\nextra-index-url =\n  https://b.example/simple\n"
        "  https://c.example/simple\ncert = /etc/ca.pem\ntrusted-host = a.example b.example\n"
        "proxy = http://proxy.example:3128\nonly-binary = :all:\nno-binary = x\n"
        "[install]\nfind-links = /wheels /more\nconstraint = /etc/constraints\npre = yes\n"
        "[list]\nformat = json\nrequirement = /x\n"
    )
    variables = {
        "HOME": str(tmp_path),
        "XDG_CONFIG_DIRS": str(tmp_path),
        "PIP_TIMEOUT": "7",
        "SSL_CERT_FILE": "/etc/other.pem",  # the setting of pip wins, as in pip
        "https_proxy": "http://other.example",
    }
    proxies = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
    translated = {
        "UV_DEFAULT_INDEX": "https://a.example/simple",
        "UV_INDEX": "https://b.example/simple https://c.example/simple",
        "UV_FIND_LINKS": "/wheels,/more",
        "UV_INSECURE_HOST": "a.example b.example",
        "UV_CONSTRAINT": "/etc/constraints",
        "UV_PRERELEASE": "allow",
        "UV_HTTP_TIMEOUT": "7",
        "SSL_CERT_FILE": "/etc/ca.pem",
        **dict.fromkeys(proxies, "http://proxy.example:3128"),
    }
    defaults = {
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_NATIVE_TLS": "true",
        "UV_NO_WRAP": "1",
        "UV_PYTHON_PREFERENCE": "system",
    }
    expected = {**variables, **defaults, **translated}
    assert uv_settings(variables) == (expected, ["--only-binary=:all:"])
    own = {"UV_DEFAULT_INDEX": "https://uv.example/simple", "UV_NATIVE_TLS": "false"}
    assert uv_settings({**variables, **own})[0] == {**expected, **own}
    older = {"UV_INDEX_URL": "https://own.example/simple", "UV_EXTRA_INDEX_URL": ""}
    assert uv_settings({**variables, **older})[0] == {
        **expected,
        "UV_DEFAULT_INDEX": "https://own.example/simple",
    }
    assert "--no-index" in uv_settings({**variables, "PIP_NO_INDEX": "1"})[1]
    assert "--no-index" not in uv_settings({**variables, "PIP_NO_INDEX": "0"})[1]
    bundle = {"PIP_CONFIG_FILE": "/dev/null", "REQUESTS_CA_BUNDLE": "/etc/bundle.pem"}
    assert uv_settings(bundle)[0]["SSL_CERT_FILE"] == "/etc/bundle.pem"


def test_a_home_in_which_nothing_can_be_written_only_makes_an_installation_slower(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel(index, "source-x", ("source-x",))
    monkeypatch.setenv("HOME", "/dev/null")
    for name in ("XDG_CACHE_HOME", "PIP_NO_CACHE_DIR", "UV_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    assert install("source-x==1.0", tmp_path / "home").exists()


def test_a_setting_of_pip_that_uv_does_not_have_is_refused(tmp_path: Path) -> None:
    """Every setting of pip that decides what is installed holds or is refused; the others have no effect."""
    for key in ("PIP_NO_DEPS", "PIP_PLATFORM", "PIP_ONLY_FINAL"):
        with pytest.raises(ConfigError, match=f"does not have pip's setting .*{key}"):
            uv_settings({key: "x", "PIP_CONFIG_FILE": "/dev/null"})
    config = tmp_path / "pip.conf"
    config.write_text("no section")
    with pytest.raises(ConfigError, match=r"pip\.conf cannot be read"):
        uv_settings({"PIP_CONFIG_FILE": str(config)})


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


def test_a_python_that_is_not_there_is_named(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program of that name and of another version is not taken for it."""
    wheel(index, "source-x", ("source-x",))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3.99").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(ConfigError, match=r"no Python 3\.99 on this machine, and uv could not"):
        install("source-x==1.0", tmp_path / "home", Installation(python="3.99"))
    for python in (tmp_path / "none", "/bin/true"):
        with pytest.raises(ConfigError, match="is not an interpreter that can be started"):
            install("source-x==1.0", tmp_path / "home", Installation(python=str(python)))


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
