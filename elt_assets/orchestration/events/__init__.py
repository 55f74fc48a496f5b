"""Write and read events in the event log of Dagster."""
