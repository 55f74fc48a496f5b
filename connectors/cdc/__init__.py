"""Logs of changes of databases (CDC): what the sources that read one have in common.

**The same set.** What a snapshot of a table shows, and what the log then tells, is the same set of rows and
columns, of the same objects, from a moment that is proven. Whatever breaks this is an error, or a warning
that names the way out; it is never silence. Each source states in its module how it knows the objects, since
the logs tell different things: `connectors.postgres.log.forms`, `connectors.mysql.log.statements`.

**The fields** of a change, and the end of all rows of a table, are the same in all sources: `fields`,
`truncations`. **The columns** of a log and of a catalog may differ: `columns` says what becomes of the
values.
"""
