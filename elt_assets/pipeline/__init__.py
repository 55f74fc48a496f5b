"""Planning and running one sync, and reading its tables, without Dagster."""
