"""The state of a stream: bookmarks by partition, and the order of their values."""
