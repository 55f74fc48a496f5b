"""One sync, planned and run, and the reading of its tables; without Dagster."""
