"""Records of responses: extraction, filters, transformations, normalization."""
