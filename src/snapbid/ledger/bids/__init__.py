"""Remember bids, settle each notice once, and count both (contract 5)."""
