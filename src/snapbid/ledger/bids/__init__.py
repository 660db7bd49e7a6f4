"""Bids and notices: remembered, settled once, counted by segment (contract 5)."""
