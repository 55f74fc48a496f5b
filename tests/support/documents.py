"""The examples of the documents: their code blocks, and their commands run as they are written."""

from __future__ import annotations

import re
import subprocess

from tests.support.project import BIN, REPOSITORY, Project


def code_blocks(document: str, language: str) -> list[str]:
    """Return the text of each code block of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", document, flags=re.MULTILINE | re.DOTALL)


def shell_environment(project: Project) -> dict[str, str]:
    """Return the environment of a project, with the programs of this Python first in the PATH."""
    environment = project.environment
    return {**environment, "PATH": f"{BIN}:{environment['PATH']}"}


def run_command(command: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a line of shell in the repository, which must succeed."""
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done
