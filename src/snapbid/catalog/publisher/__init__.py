"""The catalog publisher: keeps the catalog files in step with the warehouse."""
