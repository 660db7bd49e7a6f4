"""Demand signals: the part of an SSP's traffic that some campaign could bid on (contract 11)."""
