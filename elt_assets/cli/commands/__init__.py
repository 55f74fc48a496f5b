"""The sub-commands of `elt`, one module each; `entry.COMMANDS` lists them."""
