"""The sub-commands of `elt`, one module each; `entry.COMMANDS` names them."""
