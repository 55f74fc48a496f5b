"""`elt state`: shows and changes the state of a stream."""

from elt_assets.cli.commands.state import change, show
from elt_assets.cli.commands.state.group import command

__all__ = ["change", "command", "show"]
