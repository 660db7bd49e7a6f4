"""The ledger: bids, budgets and frequency caps in Redis.

`bids/ledger.py` is the interface for other packages. `bids/shard.py` fills each batch and sends it.
`bids/records.py` defines the layouts, the scripts (`scripts/*.lua`) decide inside Redis in one
step, and `bids/spool.py` stores notices on disk while Redis is unavailable. `budgets/` moves money
between the shards, `caps/` delivers impressions to the users' shards, `admin/` moves and closes
ledgers.
"""
