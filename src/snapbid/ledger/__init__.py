"""The ledger: bids, budgets and frequency caps in Redis.

`bids/ledger.py` is the interface for other packages. `bids/shard.py` fills each batch and sends it.
`bids/records.py` defines the layouts. The scripts (`scripts/*.lua`) decide inside Redis, each in
one step. `bids/spool.py` stores notices on disk while Redis is unavailable. `budgets/` moves money
between the shards, `caps/` delivers impressions to the users' shards, and `admin/` moves and closes
ledgers.
"""
