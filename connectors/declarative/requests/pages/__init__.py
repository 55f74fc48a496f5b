"""Pages of a slice: which one follows another."""
