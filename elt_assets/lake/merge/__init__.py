"""Merge of a checkpoint's rows into the rows of a table: deduplication, history, partitions."""
