"""Redis: addresses, topology, connections and round trips; nothing of bids."""
