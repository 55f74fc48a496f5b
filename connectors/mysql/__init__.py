"""A source for MySQL and MariaDB: tables and views, read by slices, in full or by a cursor column."""
