"""The kinds of source that a connection may name."""
