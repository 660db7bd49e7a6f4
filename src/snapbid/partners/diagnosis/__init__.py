"""The diagnosis: an SSP's view of its own traffic: outcomes, mistakes, notices (contract 11)."""
