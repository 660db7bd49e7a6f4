"""Redis: what must be remembered between requests.

`shard.py` carries it there in batches, the *.lua files decide there in one step, `spool.py` holds
what comes while Redis is away, `ledger.py` puts them together.
"""
