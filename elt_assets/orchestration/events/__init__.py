"""What Dagster's event log is told, and what it says."""
