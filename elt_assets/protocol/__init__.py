"""The protocols of connectors: messages, catalogs and codecs. No I/O, no Dagster, no Spark."""
