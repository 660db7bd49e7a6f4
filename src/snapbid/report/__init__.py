"""Room 2: the daily report of an SSP family, read from the warehouse (document 1; contract 6)."""
