"""What is done to tables between syncs, and how they are read."""
