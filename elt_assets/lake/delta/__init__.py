"""Delta tables: files, commits, and what a commit says."""
