"""Which fields of records are stored: rules, schemas, and the filter of records."""
