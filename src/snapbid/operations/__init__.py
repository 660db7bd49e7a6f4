"""What operators use: dashboard, explain, go-live, reconcile, recordings, files to export."""
