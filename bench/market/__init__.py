"""A benchmark of bidders: one corpus, one contract, an adapter for each bidder (`README.md`)."""
