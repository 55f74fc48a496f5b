"""JSON schemas of streams."""
