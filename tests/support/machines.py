"""Several machines on one Redis Cluster and one warehouse, as processes of this one."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from support.cluster import Cluster
from support.stack import Stack


@contextlib.contextmanager
def serving(cluster: Cluster, database: str, folder: Path, **environ: str) -> Iterator[list[Stack]]:
    """Two servers that are ready, each with a home of its own, and a drain beside them."""
    shared = {"SNAPBID_DATABASE_URL": database, "SNAPBID_REDIS_URL": cluster.url, **environ}
    with contextlib.ExitStack() as stack:
        made = []
        for name, command in (("a", "drain"), ("a", "serve"), ("b", "serve")):
            made.append(Stack({**shared, "SNAPBID_HOME": str(folder / name)}, command))
            stack.callback(made[-1].close)
            made[-1].launch()
        served = made[1:]
        for each in served:
            each.await_ready()
        yield served
