"""The diagnosis: an SSP's view of its own traffic, with outcomes, mistakes and notices (contract
11)."""
