"""Pages of the site that are made when it is built: the reference, and documents of the repository's root."""
