"""`snapbid reconcile`: compares an SSP's log with the auction log and the report (contract 11)."""
