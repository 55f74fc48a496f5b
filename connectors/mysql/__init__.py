"""A source for MySQL and MariaDB: tables and views, in full, by a cursor column, or by the log (CDC)."""
