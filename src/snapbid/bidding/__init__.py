"""The bid and notice endpoints (document 2); `_bid_path` has the flow of a bid request."""
