"""The ledger: bids, budgets and frequency caps in Redis.

`bids/ledger.py` is the interface for other packages. `bids/commit.py` decides, without I/O, what
each batch sends; `bids/shard.py` sends it. `bids/batch.py` and `bids/records.py` define the
layouts, the scripts (`scripts/*.lua`) decide inside Redis in one step, and `bids/spool.py` stores
notices on disk while Redis is unavailable. `budgets/` moves money between the shards, `caps/`
delivers impressions to the users' shards, `admin/` moves and closes ledgers.
"""
