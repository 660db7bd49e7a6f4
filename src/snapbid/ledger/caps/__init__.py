"""Frequency caps across shards (contract 3)."""
