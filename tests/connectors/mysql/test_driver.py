"""What the source uses of the driver beside its public interface, which a minor version may change.

A new version of PyMySQL is let in (`pyproject.toml`) when it has these members, and the other tests pass.
"""

from __future__ import annotations

import ast
import sys
from importlib.metadata import version
from pathlib import Path

import pymysql
from packaging.requirements import Requirement

from connectors.mysql import session
from tests.support.project import REPOSITORY

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MEMBERS = {
    "_execute_command": "sends COM_STMT_PREPARE, COM_STMT_EXECUTE and COM_BINLOG_DUMP",
    "_read_packet": "reads the answers to these, and the events of the log",
    "_rfile": "the rows of the binary protocol, which are read in blocks",
    "_force_close": "closes the connection without a wait for the rest of the rows",
    "_ssl_required": "switched off for `ssl_mode: preferred`",
    "server_public_key": "refused: a key of the server that came without TLS",
}
DOCUMENTED = {"decoders", "client_flag", "get_server_info", "query", "cursor", "connect"}


def test_the_members_of_the_driver_are_those_that_are_named_here() -> None:
    used = set()
    for path in Path(session.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("connection"):
                used.add(node.attr)
    assert used - DOCUMENTED == MEMBERS.keys() - {"server_public_key"}
    assert '{"server_public_key":' in Path(session.__file__).read_text()


def test_the_driver_has_them() -> None:
    connection = pymysql.connect(defer_connect=True)
    assert [name for name in MEMBERS if not hasattr(connection, name)] == []


def test_no_version_is_let_in_that_was_not_tried() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    (text,) = project["optional-dependencies"]["mysql"]
    allowed, tried = Requirement(text).specifier, version("pymysql")
    assert tried in allowed
    major, minor, *_ = map(int, tried.split("."))
    assert f"{major}.{minor + 1}.0" not in allowed
