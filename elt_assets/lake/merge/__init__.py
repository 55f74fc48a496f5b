"""How a checkpoint's rows join the rows of a table: deduplication, history, partitions."""
