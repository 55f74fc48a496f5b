"""The Spark session, and the code that runs on its executors."""
