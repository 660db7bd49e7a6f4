"""Reference data that never changes while a process runs: countries, geo database, user agents,
exchange rates, taxonomies.
"""
