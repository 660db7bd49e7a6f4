"""The private port: metrics of all workers, and the operator's page (contract 8)."""
