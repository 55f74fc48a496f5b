"""States between the source and their acknowledgement."""
