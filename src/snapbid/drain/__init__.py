"""Redis -> warehouse, exactly once (contract 5).

The ledger leaves in Redis cumulative counters and the names of those that changed. A round moves
the names aside, reads the counters in batches and has the warehouse absorb each in one transaction,
which adds the difference to what it absorbed before; after the last commit the names are removed.
Whatever dies in between, the next round does the same again, and what was absorbed already differs
by nothing. While a group of shards is written, the next one is read.

`counters.py` is the side of Redis, `drain.py` the rounds, `run.py` the process.
"""
