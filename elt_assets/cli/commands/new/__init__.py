"""`elt new`: creates a connection."""

from elt_assets.cli.commands.new.connection import command

__all__ = ["command"]
