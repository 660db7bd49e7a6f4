"""What partners can read: API documentation, diagnosis, demand signals."""
