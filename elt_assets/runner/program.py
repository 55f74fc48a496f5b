"""What a connector is run from: a command or an image, its environment, and the account that it runs as."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from elt_assets.protocol.masking import Masker
from elt_assets.runner.config.environment import Environment
from elt_assets.runner.process.account import Account
from elt_assets.runner.process.container import Image


@dataclass(frozen=True)
class Launch:
    """The arguments of one `Process`: its command line, its variables, the command that removes what it
    leaves behind, and its account."""

    words: Sequence[str]
    environment: dict[str, str]
    removal: Sequence[str]
    account: Account | None


@dataclass(frozen=True)
class Program:
    """A connector's program.

    Args:
        command: the program and its first arguments; resolved when it is first started, since finding it
            may mean installing it.
        image: that it is run from, in place of a command.
        user: of this machine, that it runs as; None for this process's.
    """

    command: Callable[[], Sequence[str]]
    image: Image | None
    environment: Environment
    user: str | None

    def launch(self, arguments: Sequence[str], folder: Path | None, mask: Masker) -> Launch:
        """Prepare a start.

        Args:
            arguments: of the program.
            folder: of the private files that they name; the program's account gets it.
            mask: learns the secrets of the program's environment.
        """
        command: Sequence[str] = self.command()
        removal: Sequence[str] = ()
        account = None if self.user is None else Account.named(self.user)
        if account is not None and folder is not None:
            account.take(folder)
        if self.image is not None:
            run = self.image.container(folder, self.environment.names)
            command, removal = run.command, run.removal
        return Launch([*command, *arguments], self._variables(account, mask), removal, account)

    def notices(self, name: str) -> list[tuple[str, str]]:
        """What a user should know of how the program is run: a level, as in the protocol, and a text."""
        found = []
        withheld = self.environment.hint()
        if withheld is not None:
            found.append(("DEBUG", f"{name}: {withheld}"))
        if self.image is not None and self.image.moves:
            text = f"the image {name} has no fixed tag, so it may be another one at each run"
            found.append(("WARN", f"{text}; write a version or a digest in the connection's YAML"))
        return found

    def _variables(self, account: Account | None, mask: Masker) -> dict[str, str]:
        variables, secrets = self.environment.variables()
        mask.add(secrets)
        if account is not None and "HOME" not in self.environment.names:
            variables["HOME"] = account.home
        return variables
