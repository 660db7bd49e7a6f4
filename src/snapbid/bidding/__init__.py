"""The bid endpoint and its notices (document 2); a bid's way is told in `_bid_path`."""
