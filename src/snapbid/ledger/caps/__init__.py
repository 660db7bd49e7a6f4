"""Frequency caps over several shards (contract 3)."""
