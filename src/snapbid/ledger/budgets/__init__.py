"""Budgets, pacing and escrow over several shards (contract 3 and 10)."""
