"""The catalog publisher, which keeps the catalog files in step with the warehouse."""
