"""Drain Redis into the warehouse, exactly once (contract 5).

The ledger keeps cumulative counters in Redis, and the names of changed counters. A round sets the
names aside, reads the counters in batches, and absorbs each batch in one transaction, which adds
each counter's difference from the value absorbed before. After the last commit the names are
removed. A round interrupted anywhere is simply repeated: a counter that was already absorbed has a
difference of zero. While the batches of some shards are absorbed, the next shards are read.

`counters.py` reads Redis, `drain.py` runs the rounds, `run.py` is the process.
"""
