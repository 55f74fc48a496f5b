"""Changes of tables, read from a replication slot (CDC)."""
