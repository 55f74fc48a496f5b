"""One sync of one stream, written to its tables."""
