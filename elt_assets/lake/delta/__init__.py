"""Delta tables: their files, commits, and commit metadata."""
