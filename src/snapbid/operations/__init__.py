"""Tools for operators: dashboard, explanations, go-live checks, reconciliation and others."""
