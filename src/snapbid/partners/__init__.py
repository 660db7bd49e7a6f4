"""What partners read of the bidder: API pages, diagnosis, demand signals."""
