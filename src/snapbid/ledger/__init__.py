"""Redis: what must be remembered between requests."""
