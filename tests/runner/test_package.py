"""Connectors from packages: pinned, installed once, whole or not at all."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import zipfile
from pathlib import Path

import pytest

from elt_assets.errors import ConfigError, TransientError
from elt_assets.runner.package import install


def wheel(folder: Path, name: str, programs: tuple[str, ...]) -> None:
    """A package whose every program prints its own name."""
    module, info = name.replace("-", "_"), f"{name.replace('-', '_')}-1.0.dist-info"
    scripts = "\n".join(f"{program} = {module}:main" for program in programs)
    files = {
        f"{module}.py": "import sys, pathlib\ndef main(): print(pathlib.Path(sys.argv[0]).name)\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{scripts}\n",
    }
    lines = []
    with zipfile.ZipFile(folder / f"{module}-1.0-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
            lines.append(f"{path},sha256={digest.decode()},{len(text)}")
        archive.writestr(f"{info}/RECORD", "\n".join([*lines, f"{info}/RECORD,,", ""]))


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place where pip looks."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    (tmp_path / "index").mkdir()
    return tmp_path / "index"


@pytest.mark.parametrize(
    "requirement",
    ["source-x", "source-x>=1", "source-x==1.*", "source-x==1,<2", "../x==1", "x ==1", "-r==x/../y", ""],
)  # fmt: skip
def test_only_an_exact_version_will_do(requirement: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no exact version\n.*name==version"):
        install(requirement, tmp_path / "home")
    assert not (tmp_path / "home").exists()


def test_a_package_is_installed_once_and_made_again_if_half_made(
    index: Path, tmp_path: Path
) -> None:
    wheel(index, "airbyte-source-x", ("other", "source-x"))
    home = tmp_path / "home"
    program = install("airbyte-source-x==1.0", home)
    assert subprocess.check_output([program], text=True) == "source-x\n"

    (index / "airbyte_source_x-1.0-py3-none-any.whl").unlink()  # nothing to install from any more
    assert install("airbyte-source-x==1.0", home) == program

    (program.parent.parent / ".installed").unlink()
    with pytest.raises(ConfigError, match=r"installing airbyte-source-x==1\.0 failed"):
        install("airbyte-source-x==1.0", home)
    wheel(index, "airbyte-source-x", ("source-x",))
    assert subprocess.check_output([install("airbyte-source-x==1.0", home)], text=True)


def test_which_program_is_meant_must_be_clear(index: Path, tmp_path: Path) -> None:
    wheel(index, "source-x", ("one", "two"))
    with pytest.raises(
        ConfigError, match=r"no program that is clearly the connector.*\n.*`command:"
    ):
        install("source-x==1.0", tmp_path / "home")


def test_the_program_is_called_as_the_package_ends(index: Path, tmp_path: Path) -> None:
    wheel(index, "somebody-tap-x", ("x", "other", "tap-x"))
    assert install("somebody-tap-x==1.0", tmp_path / "home").name == "tap-x"


def test_an_index_that_cannot_be_reached_is_no_fault_of_the_user(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(TransientError, match=r"installing source-x==1\.0 failed"):
        install("source-x==1.0", tmp_path / "home")
