"""The selection of the fields that are stored: rules, schemas, and the filter of records."""
