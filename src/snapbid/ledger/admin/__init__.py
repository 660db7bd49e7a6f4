"""Administration of a ledger: moves, closing, format, and the reports of drains and audits."""
