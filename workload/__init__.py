"""The traffic that benchmarks and tests send, and what a server needs to take it."""
