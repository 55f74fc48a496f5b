"""The Spark session, and what runs on its executors."""
