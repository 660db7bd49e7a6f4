"""What an SSP may see of its own traffic: outcomes, mistakes, notices (contract 11)."""
