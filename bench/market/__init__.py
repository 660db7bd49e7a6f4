"""A benchmark of bidders: one corpus, one contract, an adapter a bidder (`README.md`)."""
