"""Tools for operators: dashboard, explain, go-live, reconcile, recordings, files to export."""
