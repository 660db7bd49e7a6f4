"""Which of an SSP's traffic could be bid on at all, computed from the campaigns (contract 11)."""
