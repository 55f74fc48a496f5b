"""Tables made known outside of the lake: in Iceberg, and by name in catalogs."""
