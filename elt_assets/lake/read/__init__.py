"""Reading of tables: snapshots, changes, and rows for other libraries than Spark."""
