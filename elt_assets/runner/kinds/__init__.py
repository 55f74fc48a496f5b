"""The kinds of source that a connection can use."""
