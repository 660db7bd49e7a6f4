"""Budgets, pacing, and escrow across shards (contract 3 and 10)."""
