"""`elt new` and `elt new-connector`: create a connection, and a source of one's own."""

from elt_assets.cli.commands.new.connection import command

__all__ = ["command"]
