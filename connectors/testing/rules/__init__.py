"""The rules of the kit. Each one is a function of the observations, and yields findings."""
