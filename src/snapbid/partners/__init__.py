"""Pages and data for partners: API documentation, diagnosis and demand signals."""
