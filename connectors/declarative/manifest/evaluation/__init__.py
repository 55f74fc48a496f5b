"""The evaluation of templates: the sandbox, its functions, and what templates compile to."""
