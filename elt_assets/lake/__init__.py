"""The lake: Spark turns segments into Delta tables, one atomic commit per checkpoint."""
