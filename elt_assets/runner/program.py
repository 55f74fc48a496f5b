"""The program of a connector: its command or image, and its environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elt_assets.errors import EltError, TransientError
from elt_assets.protocol.airbyte.file_references import STAGING
from elt_assets.protocol.airbyte.messages import SLICES_FOLDER
from elt_assets.protocol.masking import Masker
from elt_assets.runner.config.environment import Environment
from elt_assets.runner.config.references import walk_references
from elt_assets.runner.process.container import Image


@dataclass(frozen=True)
class Launch:
    """The arguments of one `Process`.

    Args:
        command: the command line.
        environment: the environment variables.
        removal: a command that ends what the end of the process group does not end: a container.
    """

    command: Sequence[str]
    environment: dict[str, str]
    removal: Sequence[str]


@dataclass(frozen=True)
class Program:
    """A connector's program.

    Args:
        command: returns the program and its first arguments. Called only when the program is started,
            because it may install a package.
        image: the image that is run instead of `command`.
        environment: the environment variables of the program.
    """

    command: Callable[[], Sequence[str]]
    image: Image | None
    environment: Environment

    def launch(
        self,
        arguments: Sequence[str],
        folder: Path | None,
        mask: Masker,
        staging: Path | None = None,
        slices: Path | None = None,
    ) -> Launch:
        """Prepare one start of the program.

        Args:
            arguments: the program's further arguments.
            folder: the folder of the private files in `arguments`.
            mask: gets the secrets in the program's environment.
            staging: the folder into which the program puts documents.
            slices: the folder into which it puts files of slices.
        """
        command: Sequence[str] = self.command()
        removal: Sequence[str] = ()
        variables, secrets = self.environment.variables()
        mask.add(secrets)
        names = self.environment.names
        if staging is not None:
            variables[STAGING] = str(staging)
            names = [*names, STAGING]
        if slices is not None:
            variables[SLICES_FOLDER] = str(slices)
        if self.image is not None:
            run = self.image.container(folder, names, staging=staging)
            command, removal = run.command, run.removal
        return Launch([*command, *arguments], variables, removal)

    def notices(self, name: str) -> list[tuple[str, str]]:
        """Return notices for the user about how the program runs, each a protocol log level and a text."""
        messages = []
        if self.image is not None and self.image.is_mutable:
            text = f"the image {name} has no fixed tag, so each run may use a different image"
            messages.append(
                ("WARN", f"{text}; write a version or a digest in the connection's YAML")
            )
        return messages

    def explain_failure(self, error: EltError, config: Any) -> str | None:
        """Return which variables of this process the program may lack; None if there are none.

        An error that passes by itself is not for lack of a variable.

        Args:
            config: the config with its references. The variables in it are not lacking.
        """
        if isinstance(error, TransientError):
            return None
        references = walk_references(config, "")
        names = {name for _, reference in references for name in reference.variables}
        return self.environment.hint(str(error), names)
