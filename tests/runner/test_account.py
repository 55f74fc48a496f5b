"""Connectors that run as another user of this machine."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from elt_assets.errors import ConfigError
from elt_assets.runner.connector import Connector
from elt_assets.runner.kinds.registry import ConnectorOptions, open_connector
from tests.programs.hostile_source import gone

ME = pwd.getpwuid(os.geteuid()).pw_name
OTHER = "nobody"
PROGRAM = """#!/bin/sh
if [ "$1" = spec ]; then
  echo '{"type": "SPEC", "spec": {"connectionSpecification": {}}}'
  exit
fi
echo $$ > "${0%/*}/pid"
echo "$3" > "${0%/*}/config"
read_environ() { tr '\\0' ' ' < /proc/$PPID/environ | tr -cd 'A-Za-z0-9_= '; }
signal=$(kill -0 $PPID 2>/dev/null && echo may-signal)
found="$(id -u) $(cat "$3" | tr -d '"') $HOME $(cat SECRET 2>/dev/null) $(read_environ) $signal"
echo '{"type": "CONNECTION_STATUS", "connectionStatus": {"status": "SUCCEEDED", "message": "'$found'"}}'
[ "$1" = check ] || sleep 600
"""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs programs as another user")


@pytest.fixture
def folder() -> Iterator[Path]:
    """Any user may write here; pytest's own directories are this user's alone."""
    found = Path(tempfile.mkdtemp())
    found.chmod(0o777)
    yield found
    shutil.rmtree(found)


def opened(folder: Path, secret: Path, user: str, heartbeat: float | None = None) -> Connector:
    """A program that says who it is, what it was given, and what it could read."""
    secret.write_text("hunter2")
    secret.chmod(0o600)
    program = folder / "program"
    program.write_text(PROGRAM.replace("SECRET", str(secret)))
    program.chmod(0o755)
    config = {"a": 1}
    return open_connector(
        "command",
        [str(program)],
        config,
        folder / "work",
        folder,
        ConnectorOptions(heartbeat, user=user),
    )


@as_root
def test_a_connector_of_another_user_reads_only_its_own_files(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", "hunter3")
    account = pwd.getpwnam(OTHER)
    message = opened(folder, folder / "secret", OTHER).check().message
    assert message is not None and message.split() == [
        str(account.pw_uid),
        "{a:",
        "1}",
        account.pw_dir,
    ]
    assert not Path((folder / "config").read_text().strip()).parent.exists()


@as_root
def test_a_connector_of_another_user_is_stopped(folder: Path) -> None:
    connector = opened(folder, folder / "secret", OTHER, heartbeat=1)
    with pytest.raises(Exception, match="sent no output for 1 seconds"):
        connector.discover()
    assert gone(int((folder / "pid").read_text()))


def test_the_current_user_needs_no_privileges(folder: Path) -> None:
    message = opened(folder, folder / "secret", ME).check().message
    assert message is not None and message.split()[:3] == [str(os.geteuid()), "{a:", "1}"]


def test_an_unknown_user_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"no user 'no-such-user'.*\n.*`user`"):
        opened(folder, folder / "secret", "no-such-user").check()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may run programs as anybody")
def test_another_user_is_refused_without_root(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be run as the user 'root'.*\n.*`image:`"):
        opened(folder, folder / "secret", "root").check()
