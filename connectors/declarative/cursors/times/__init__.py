"""Date-times in the formats of manifests, and intervals of time."""
