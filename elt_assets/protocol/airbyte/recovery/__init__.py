"""Recovery of messages from lines that do not have the form of the protocol."""
