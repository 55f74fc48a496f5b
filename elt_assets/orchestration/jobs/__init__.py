"""Jobs beside syncs: looking at a source, maintenance, replay."""
