"""The project's folders, and the salt of hashed fields: its source, and that it does not change."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from elt_assets import paths
from elt_assets.errors import ConfigError
from elt_assets.storage.folders import make_private, make_private_lake
from elt_assets.storage.staging import Staging

pytestmark = pytest.mark.process


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ELT_HASH_SALT", raising=False)
    return tmp_path / "home"


def test_the_path_of_the_lake_does_not_depend_on_the_working_directory(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    for written, found in {
        "~/lake": tmp_path / "user" / "lake",
        "data/lake/": folder / "data" / "lake",
        "/data/lake": "/data/lake",
        "s3://bucket/lake/": "s3://bucket/lake",
        "": folder / "lake",
    }.items():
        monkeypatch.setenv("ELT_LAKE", written)
        for working in (tmp_path, Path("/")):
            monkeypatch.chdir(working)
            assert paths.lake() == str(found)
    monkeypatch.setenv("ELT_STAGING", "fast/staging")
    assert paths.staging() == folder / "fast" / "staging"
    monkeypatch.setenv("ELT_STAGING", "s3://bucket/staging/")
    assert paths.staging() == folder / "staging"
    shared = paths.staging_of_syncs().shared
    assert shared is not None and shared.uri == "s3://bucket/staging"
    monkeypatch.setenv("ELT_STAGING", "file:///fast%20disk/staging")
    assert paths.staging_of_syncs() == Staging(Path("/fast disk/staging"))
    with pytest.raises(ConfigError, match="not in an object store"):
        paths.staging_of_syncs("hdfs://name/staging")


def test_an_installed_package_writes_nothing_to_the_working_directory(tmp_path: Path) -> None:
    """The command runs without a project around it, and without DAGSTER_HOME."""
    site = tmp_path / "site-packages"
    shutil.copytree(Path(paths.__file__).parent, site / "elt_assets")
    user, working = tmp_path / "user", tmp_path / "working"
    working.mkdir()
    environment = {"PYTHONPATH": str(site), "HOME": str(user), "PATH": os.environ["PATH"]}

    def run(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *words],
            cwd=working,
            env={**environment, **more},
            capture_output=True,
            text=True,
            check=False,
        )

    script = "from elt_assets import paths; print(paths.home(), paths.lake(), paths.staging())"
    places = [user / ".local" / "share" / "elt-assets" / name for name in ("", "lake", "staging")]
    assert run("-c", script).stdout.split() == [str(place) for place in places]
    assert run("-c", script, XDG_DATA_HOME="/data").stdout.split()[0] == "/data/elt-assets"

    new = ["-m", "elt_assets.cli", "new", "mine", "--source", "faker"]
    refused = run(*new)
    assert refused.returncode == 2 and "elt init" in refused.stderr
    assert "elt init" in run("-m", "elt_assets.cli", "discover", "shop").stderr
    assert not (site / "elt_assets" / "defs" / "mine").exists()
    assert run(*new, ELT_DEFS="connections").returncode == 0
    assert [path.name for path in working.iterdir()] == ["connections"]


@pytest.mark.usefixtures("any_umask")
def test_a_salt_is_created_once_and_readable_only_by_its_owner(folder: Path) -> None:
    salt = paths.hash_salt()
    [path] = folder.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(bytes.fromhex(salt.decode())) == 32
    assert paths.hash_salt() == salt == path.read_bytes().strip()


def test_the_variable_takes_precedence_over_the_salt_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    salt = paths.hash_salt()
    monkeypatch.setenv("ELT_HASH_SALT", "påpper")
    assert paths.hash_salt() == "påpper".encode()
    monkeypatch.setenv("ELT_HASH_SALT", (folder / paths.SALT_FILE).read_text().strip())
    assert paths.hash_salt() == salt
    monkeypatch.setenv("ELT_HASH_SALT", "")
    assert paths.hash_salt() == salt


def test_no_salt_file_is_created_if_the_variable_is_set(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELT_HASH_SALT", "x")
    paths.hash_salt()
    assert not folder.exists()


def test_concurrent_processes_get_the_same_salt(folder: Path) -> None:
    script = "import sys; sys.stdin.read(); from elt_assets import paths; print(paths.hash_salt())"
    command = [sys.executable, "-c", script]
    asking = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(6)
    ]
    for process in asking:
        assert process.stdin is not None
        process.stdin.close()
    answers = set()
    for process in asking:
        assert process.stdout is not None
        with process.stdout:
            answers.add(process.stdout.read())
        assert process.wait() == 0
    assert len(answers) == 1
    assert [path.name for path in folder.iterdir()] == [paths.SALT_FILE]


def test_an_empty_salt_is_refused(folder: Path) -> None:
    folder.mkdir()
    (folder / paths.SALT_FILE).write_text("\n")
    with pytest.raises(ConfigError, match=r"hash_salt, is empty\n.*backup"):
        paths.hash_salt()


def test_a_salt_that_cannot_be_created_is_an_error(folder: Path) -> None:
    folder.write_text("no directory")
    with pytest.raises(ConfigError, match=r"cannot read or create .*hash_salt: .*\n.*HASH_SALT"):
        paths.hash_salt()


def test_a_fingerprint_identifies_a_salt_without_showing_it() -> None:
    one, other = paths.fingerprint(b"one"), paths.fingerprint(b"other")
    assert one == paths.fingerprint(b"one") != other
    assert len(one) == 16


@pytest.mark.usefixtures("any_umask")
def test_new_directories_are_accessible_only_to_their_owner(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    make_private(shared / "a" / "b")
    make_private_lake(f"{shared}/lake")
    make_private_lake(f"file://{shared}/a/to%20share")
    make_private_lake("s3://bucket/lake")
    for folder, mode in {
        "": 0o755,
        "a": 0o700,
        "a/b": 0o700,
        "lake": 0o700,
        "a/to share": 0o700,
    }.items():
        assert stat.S_IMODE((shared / folder).stat().st_mode) == mode
    assert sorted(path.name for path in shared.iterdir()) == ["a", "lake"]
    (shared / "file").touch()
    with pytest.raises(NotADirectoryError):
        make_private(shared / "file")
    with pytest.raises(ConfigError, match=r"create .* the lake, .*/file/lake: .*\n.*ELT_LAKE"):
        make_private_lake(f"{shared}/file/lake")


@pytest.mark.parametrize("place", ["{}/a%20b", "{}/100%/lake", "file://{}/100%25"])
def test_a_lake_is_refused_where_no_table_could_be_read(tmp_path: Path, place: str) -> None:
    with pytest.raises(ConfigError, match=r"the Delta library decodes the %.*\n.*ELT_LAKE"):
        make_private_lake(place.format(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_processes_that_start_at_once_create_the_home_once(folder: Path) -> None:
    """Dagster would fail in all but one of them."""
    script = """
import os
from elt_assets.orchestration.resources import open_instance

children = []
start, starter = os.pipe()
for _ in range(4):
    child = os.fork()
    if not child:
        os.close(starter)
        os.read(start, 1)  # until the parent closes its end
        with open_instance() as instance:
            instance.get_runs(limit=1)
            instance.all_instigator_state()
        os._exit(0)
    children.append(child)
os.close(starter)
assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "DAGSTER_HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
