"""Columns: their types, names and changes, from the schemas of streams."""
