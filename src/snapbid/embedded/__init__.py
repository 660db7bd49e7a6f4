"""Everything on one machine: private PostgreSQL and Redis, and `snapbid up` (contract 1).

The tests use the same servers, on unix sockets in a home directory owned by one process at a time::

    with Home(path) as home:
        postgres = Postgres(home)
        postgres.start()      # blocks until it answers
        postgres.dsn
        postgres.stop()

Start servers from a thread that lives as long as they should: the kernel stops them when the thread
ends, so nothing survives a `kill -9` of the owner.
"""

from snapbid.embedded.home import Home, running_env
from snapbid.embedded.postgres import Postgres
from snapbid.embedded.process import EmbeddedError
from snapbid.embedded.redis import Redis

__all__ = ["EmbeddedError", "Home", "Postgres", "Redis", "running_env"]
