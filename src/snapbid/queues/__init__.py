"""Event streams, rate limits and permits, kept in Redis."""
