"""Administration of a ledger: moving, closing, versions, and reports of drains."""
