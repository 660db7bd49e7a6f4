"""Reference data, constant while a process runs: countries, user agents, rates, taxonomies."""
