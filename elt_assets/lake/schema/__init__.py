"""The types, names and columns of tables: how JSON schemas define them, and how they may change."""
