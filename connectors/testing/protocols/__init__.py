"""The protocols of connectors: the command line, the files that are arguments, and the messages on stdout."""
