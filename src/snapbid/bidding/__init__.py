"""The bid and notice endpoints (document 2); `_bid_path` processes a bid request."""
