"""Types, names and columns of tables, from JSON schemas, and how they may change."""
