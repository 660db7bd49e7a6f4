"""PostgreSQL: the schema in numbered files, and a module for each group of tables."""
