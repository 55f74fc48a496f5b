"""Connectors from packages: pinned, installed once, whole or not at all."""

from __future__ import annotations

import base64
import hashlib
import io
import stat
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from elt_assets.errors import ConfigError, EltError, TransientError
from elt_assets.runner import manifests
from elt_assets.runner.kinds import open_connector
from elt_assets.runner.packages import Installation, install, is_installed
from tests.programs.python_manifest import python_manifest, write_manifest
from tests.support.connector_specs import spec_of


def wheel(
    folder: Path, name: str, programs: tuple[str, ...], pth: str = "", version: str = "1.0"
) -> None:
    """A package whose every program prints its own name; `pth` runs whenever its Python starts."""
    module, info = name.replace("-", "_"), f"{name.replace('-', '_')}-{version}.dist-info"
    scripts = "\n".join(f"{program} = {module}:main" for program in programs)
    files = {
        f"{module}.py": "import sys, pathlib\ndef main(): print(pathlib.Path(sys.argv[0]).name)\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{scripts}\n",
    }
    if pth:
        files[f"{module}.pth"] = f"import os, pathlib; {pth}\n"
    lines = []
    with zipfile.ZipFile(folder / f"{module}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
            lines.append(f"{path},sha256={digest.decode()},{len(text)}")
        archive.writestr(f"{info}/RECORD", "\n".join([*lines, f"{info}/RECORD,,", ""]))


BACKEND = """
import os, pathlib, time
pathlib.Path({marker!r}).write_text(repr(dict(os.environ)))
print("the index is", os.environ.get("PIP_EXTRA_INDEX_URL"), os.environ.get("PGPASSWORD"))
{then}
def get_requires_for_build_wheel(config_settings=None): return []
def build_wheel(folder, config_settings=None, metadata_directory=None):
    import shutil
    return pathlib.Path(shutil.copy({wheel!r}, folder)).name
"""


def source_distribution(folder: Path, name: str, marker: Path, then: str = "") -> None:
    """A package that is built by code of its own, which writes down its environment; `then`: what else."""
    outside = folder.parent / "built"
    outside.mkdir(exist_ok=True)
    wheel(outside, name, ("source-x",))
    [built] = outside.iterdir()
    files = {
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "backend.py": BACKEND.format(marker=str(marker), wheel=str(built), then=then),
    }
    with tarfile.open(folder / f"{name.replace('-', '_')}-1.0.tar.gz", "w:gz") as archive:
        for path, text in files.items():
            info = tarfile.TarInfo(f"{name.replace('-', '_')}-1.0/{path}")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place where packages are searched for."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    # A wheel that an earlier run built is not built again.
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    (tmp_path / "index").mkdir()
    return tmp_path / "index"


@pytest.mark.parametrize(
    "requirement",
    ["source-x", "source-x>=1", "source-x==1.*", "source-x==1,<2", "../x==1", "x ==1", "-r==x/../y", ""],
)  # fmt: skip
def test_a_package_without_an_exact_version_is_refused(requirement: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no exact version\n.*name==version"):
        install(requirement, tmp_path / "home")
    assert not (tmp_path / "home").exists()


def test_a_package_is_installed_once_and_again_if_incomplete(index: Path, tmp_path: Path) -> None:
    wheel(index, "airbyte-source-x", ("other", "source-x"))
    home = tmp_path / "home"
    program = install("airbyte-source-x==1.0", home)
    assert subprocess.check_output([program], text=True) == "source-x\n"
    assert stat.S_IMODE(home.stat().st_mode) == 0o700

    with pytest.raises(ConfigError, match=r"no compatible wheel of airbyte-source-x\n"):
        install("airbyte-source-x==2.0", home)
    (index / "airbyte_source_x-1.0-py3-none-any.whl").unlink()  # nothing to install from any more
    assert install("airbyte-source-x==1.0", home) == program

    (program.parent.parent / ".installed").unlink()
    with pytest.raises(ConfigError, match=r"installing airbyte-source-x==1\.0 failed"):
        install("airbyte-source-x==1.0", home)
    wheel(index, "airbyte-source-x", ("source-x",))
    assert subprocess.check_output([install("airbyte-source-x==1.0", home)], text=True)


def test_a_package_with_several_possible_programs_is_refused(index: Path, tmp_path: Path) -> None:
    wheel(index, "source-x", ("one", "two"))
    with pytest.raises(
        ConfigError, match=r"no program that is clearly the connector.*\n.*`command:"
    ):
        install("source-x==1.0", tmp_path / "home")


def test_the_program_named_like_the_end_of_the_package_name_is_selected(
    index: Path, tmp_path: Path
) -> None:
    wheel(index, "somebody-tap-x", ("x", "other", "tap-x"))
    assert install("somebody-tap-x==1.0", tmp_path / "home").name == "tap-x"


def test_an_unreachable_index_is_a_transient_error(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(TransientError, match=r"installing source-x==1\.0 failed"):
        install("source-x==1.0", tmp_path / "home")


def test_an_installation_runs_no_code_of_the_package(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither at the start of its Python, to look for programs, nor by a build of what has no wheel."""
    monkeypatch.setenv("ELT_HASH_SALT", "hunter2")
    ran = tmp_path / "ran"
    wheel(index, "source-x", ("source-x",), pth=f"pathlib.Path({str(ran)!r}).touch()")
    program = install("source-x==1.0", tmp_path / "home")
    assert not ran.exists()
    assert subprocess.check_output([program], text=True) == "source-x\n"
    assert ran.exists()

    source_distribution(index, "source-y", tmp_path / "built-y")
    with pytest.raises(
        ConfigError,
        match=r"no compatible wheel of source-y.*\n.*source_distributions: \[source-y\]",
    ):
        install("source-y==1.0", tmp_path / "home")
    assert not (tmp_path / "built-y").exists()


@pytest.mark.parametrize("allowed", [True, ["source-x"]])
def test_an_allowed_build_gets_only_the_variables_of_an_installer(
    allowed: bool | list[str], index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELT_HASH_SALT", "hunter2")
    monkeypatch.setenv("SHOP_REGION", "hunter2")
    built = tmp_path / "built-x"
    source_distribution(index, "source-x", built)
    how = Installation(source_distributions=allowed)
    program = install("source-x==1.0", tmp_path / "home", how)
    assert subprocess.check_output([program], text=True) == "source-x\n"
    assert "hunter2" not in built.read_text() and "PIP_FIND_LINKS" in built.read_text()


def test_the_output_of_a_failed_build_is_shown_without_secrets(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "http://me:hunter2@127.0.0.1:1/simple")
    monkeypatch.setenv("PGPASSWORD", "hunter3")
    source_distribution(
        index, "source-x", tmp_path / "built-x", "import sys; sys.exit('it is ' + 'hunter3')"
    )
    with pytest.raises(TransientError) as failure:
        install("source-x==1.0", tmp_path / "home", Installation(source_distributions=True))
    assert "the index is" in str(failure.value) and "it is ****" in str(failure.value)
    assert "hunter" not in str(failure.value)


def test_an_installation_is_stopped_at_its_time_limit(index: Path, tmp_path: Path) -> None:
    source_distribution(index, "source-x", tmp_path / "built-x", "time.sleep(600)")
    how = Installation(source_distributions=True, seconds=1)
    with pytest.raises(TransientError, match=r"took longer than 1 seconds\n.*install: \{seconds"):
        install("source-x==1.0", tmp_path / "home", how)


def test_a_lock_file_determines_the_installed_packages(index: Path, tmp_path: Path) -> None:
    wheel(index, "source-x", ("source-x",))
    [file] = index.iterdir()
    lock, home = tmp_path / "requirements.lock", tmp_path / "home"
    how = Installation(lock_file=lock)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    lock.write_text(f"source-x==1.0 --hash=sha256:{digest}\n")
    assert subprocess.check_output([install("source-x==1.0", home, how)], text=True)
    with pytest.raises(
        ConfigError, match=r"installs 1\.0 of source-x, but the connection requires 2\.0"
    ):
        install("source-x==2.0", home, how)
    lock.write_text(f"source-x==1.0 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(ConfigError, match="do not match the lock file"):
        install("source-x==1.0", home, how)
    lock.unlink()
    with pytest.raises(ConfigError, match=r"requirements\.lock cannot be read"):
        install("source-x==1.0", home, how)


def test_further_packages_are_installed_in_an_environment_of_their_own(
    index: Path, tmp_path: Path
) -> None:
    wheel(index, "source-x", ("source-x",))
    wheel(index, "other", ())
    plain = install("source-x==1.0", tmp_path / "home")
    program = install("source-x==1.0", tmp_path / "home", Installation(packages=["other==1.0"]))
    assert program.parent != plain.parent
    subprocess.check_call([program.with_name("python"), "-c", "import other"])
    with pytest.raises(ValueError, match="packages: 'other' names no exact version"):
        Installation(packages=["other"])
    with pytest.raises(ValueError, match="the lock file already names every package"):
        Installation(packages=["other==1.0"], lock_file=tmp_path / "lock")


def test_the_engine_of_airbyte_is_installed_when_a_manifest_needs_it(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package here is empty: its Python is started after the installation, and has no engine."""
    requirement = "airbyte-cdk==1.0"
    monkeypatch.setattr(manifests, "AIRBYTE_ENGINE", requirement)
    document = python_manifest()
    file, home = write_manifest(tmp_path, document), tmp_path / "home"
    log: list[Any] = []

    def start(**options: Any) -> EltError:
        options |= {"packages": home, "on_log": lambda *line: log.append(line)}
        connector = open_connector(spec_of("manifest", str(file), tmp_path, **options))
        with pytest.raises(EltError) as caught:
            connector.specification  # noqa: B018
        return caught.value

    trusted = ("components", "source_declarative_manifest")
    assert "runs only if its module is trusted" in start().message
    assert not any("installing" in text for _, text in log)
    refused = start(trusted=trusted, engine="ours")
    assert "is Python, for Airbyte's engine" in refused.message
    missing = start(trusted=trusted)
    assert f"installing {requirement} failed: there is no compatible wheel" in missing.message
    assert any(f"installing {requirement}" in text for _, text in log)
    assert isinstance(start(engine="airbyte"), ConfigError)
    wheel(index, "airbyte-cdk", ("airbyte-cdk",))
    assert "No module named 'airbyte_cdk." in str(start(trusted=trusted))
    assert is_installed(requirement, home)
