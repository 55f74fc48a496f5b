"""Bodies of responses, decoded."""
