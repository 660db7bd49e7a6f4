"""The Redis client: topology, connections and round trips, without any knowledge of bids."""
