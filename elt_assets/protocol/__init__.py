"""The wire: messages, catalogs and their codec. No I/O, no Dagster, no Spark."""
