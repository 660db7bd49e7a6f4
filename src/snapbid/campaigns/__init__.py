"""What a campaign is, its import, and the immutable index that decides impressions (contract 3)."""
