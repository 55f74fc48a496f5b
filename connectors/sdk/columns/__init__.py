"""Columns of sources: one table of their types (`types`), and one conversion to Arrow (`conversion`)."""
