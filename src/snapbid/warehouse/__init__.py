"""PostgreSQL: the schema as numbered files, and one module per family of tables."""
