"""The diagnosis: the outcomes, mistakes and notices of an SSP's own traffic (contract 11)."""
