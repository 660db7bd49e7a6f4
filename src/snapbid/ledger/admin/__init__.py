"""What operators and other processes do with a ledger: move, close, identify, report."""
