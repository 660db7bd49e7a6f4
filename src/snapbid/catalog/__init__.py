"""The immutable index that decides impressions, what writes it and who follows it (contract 3)."""
