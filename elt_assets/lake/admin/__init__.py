"""Administration of tables between syncs: maintenance, moves, and replay of rejected records."""
