"""Source connectors: programs of their own that meet the rest of the project on a pipe."""
