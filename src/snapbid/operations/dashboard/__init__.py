"""The private port: metrics of all workers, and the operators' dashboard (contract 8)."""
