"""Writing of one sync of one stream to its tables."""
