"""What partners can read: the API documentation, the diagnosis and the demand signals."""
