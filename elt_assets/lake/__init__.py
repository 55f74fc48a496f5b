"""The lake: Spark writes segments to Delta tables, with one atomic commit per checkpoint."""
