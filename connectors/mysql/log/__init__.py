"""Changes of tables from the server's log of row changes (binlog)."""
