"""Room 1: the bid endpoint and its notifications (document 2)."""
