"""A reader of the tutorial: runs its commands in one shell and saves its files, as they stand there."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"`([\w./-]+\.(?:py|sql|toml|yaml|yml))`")
_END = "end of block"

Servers = Mapping[str, Callable[["Shell"], None]]
"""What is done instead of each command that would run until Ctrl-C."""


class Shell:
    """A shell that keeps its variables, its environment of Python and its working directory."""

    def __init__(self, folder: Path, environment: Mapping[str, str]):
        self._shell = subprocess.Popen(
            ["bash", "--norc"],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, commands: str) -> str:
        """Run commands, one a line, which must succeed; return what they print."""
        assert self._shell.stdin is not None and self._shell.stdout is not None
        lines = [f'{line} </dev/null || echo "FAILED: $?"' for line in commands.splitlines()]
        self._shell.stdin.write("\n".join([*lines, f"echo; echo {_END}", ""]))
        self._shell.stdin.flush()
        output = ""
        while (line := self._shell.stdout.readline()) != f"{_END}\n":
            assert line, f"the shell has ended\n{commands}\n{output}"
            output += line
        assert "FAILED: " not in output, f"{commands}\n{output}"
        return output

    @property
    def folder(self) -> Path:
        """The working directory."""
        return Path(self.run("pwd").strip())

    def close(self) -> None:
        """End the shell."""
        self._shell.communicate("exit\n", timeout=60)


def chapters(document: str) -> dict[int, str]:
    """Return the text of each numbered chapter."""
    parts = re.split(r"^## (\d+)\. .*$", document, flags=re.MULTILINE)
    return {int(number): text for number, text in zip(parts[1::2], parts[2::2], strict=True)}


def follow(chapter: str, shell: Shell, servers: Servers) -> str:
    """Do what a chapter says; return what its commands print."""
    output, end = "", 0
    for block in _BLOCK.finditer(chapter):
        language, content = block.groups()
        if language == "sh":
            for line in content.splitlines():
                if line in servers:
                    servers[line](shell)
                else:
                    output += shell.run(line)
        else:
            name = _FILE.findall(chapter[end : block.start()])[-1]
            _save(shell.folder / name, content)
        end = block.end()
    return output


def _save(path: Path, content: str) -> None:
    """Save a file, or the end of a file that begins with the first line of the content."""
    first = content.splitlines(keepends=True)[0]
    if path.exists():
        beginning, separator, _ = path.read_text().partition(first)
        assert separator, f"{path} has no line {first!r}"
        content = beginning + content
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
