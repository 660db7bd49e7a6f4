"""Redis: what must be remembered between requests.

`ledger.py` is what the rooms use. `commit.py` decides what is sent in which batch, without I/O;
`shard.py` sends it over the connection that `link.py` keeps up. `batch.py` and `records.py` have
the layouts, the *.lua files decide in Redis in one step, and `spool.py` keeps what comes while
Redis is away. `queue.py` commits server events, to one of the
streams of `queues.py`. `keys.py` names all that is in Redis.
`connection.py` makes connections to whichever node `nodes.py` finds, `replicas.py` waits for
replicas, and `arrangement.py` looks at what the URL names.
"""
