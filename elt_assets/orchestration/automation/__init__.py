"""What starts runs without a person, and tells of those that failed."""
