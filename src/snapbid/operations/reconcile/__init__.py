"""`snapbid reconcile`: an SSP's own log against the auction log and the report (contract 11)."""
