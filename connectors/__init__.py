"""Source connectors: separate programs that communicate with the rest of the project through pipes."""
