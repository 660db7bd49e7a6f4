"""Demand signals: the traffic of an SSP that any campaign could bid on (contract 11)."""
