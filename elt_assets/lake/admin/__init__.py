"""Administration of tables between syncs, and reading of tables."""
