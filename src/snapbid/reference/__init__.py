"""What never changes while a process runs: countries, geo database, agents, exchange rates."""
