"""Singer taps: options, catalog, messages, state."""
