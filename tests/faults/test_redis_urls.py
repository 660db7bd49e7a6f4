"""What SNAPBID_REDIS_URL says is held against what is there (contract 10)."""

import asyncio
import contextlib

import pytest
from redis.exceptions import NoPermissionError
from support.cluster import Cluster, Sentinel, Server, folder
from support.stack import JWT_SECRET, PERMISSIONS, run

from snapbid.base.redis_keys import ShardKeys
from snapbid.base.risks import forbids
from snapbid.redisclient.arrangement import fetch_risks
from snapbid.redisclient.connection import Connections

SHARDS = 3


def test_a_url_that_names_something_else_is_refused(cluster: Cluster, database: str) -> None:
    node = cluster.nodes[0].address
    with (
        folder() as path,
        contextlib.closing(Server(path)) as plain,
        contextlib.closing(Server(path, "--cluster-enabled", "yes")) as lonely,
        contextlib.closing(Sentinel.watching(path, plain)) as sentinel,
    ):
        for url, replicas, mistake in (
            (f"redis://{node}", None, "names one Redis, which is a node of a cluster"),
            (f"redis+cluster://{plain.address}", None, f"{plain.address}, which is not a node of"),
            (f"redis+cluster://{node},{plain.address}", None, f"{plain.address}, which is not"),
            (f"redis+cluster://{node},{lonely.address}", None, f"{lonely.address}, which belongs"),
            (f"redis+cluster://{lonely.address}", 0, "no running primary has slots"),
            (f"redis+cluster://{sentinel.address}", None, f"{sentinel.address}, which is not"),
            (f"redis://{sentinel.address}", None, "names one Redis, which is a sentinel"),
            (f"redis+sentinel://{plain.address}/x", None, f"{plain.address}, which is not"),
            (f"redis+sentinel://{sentinel.address}/x", None, "'x', which a sentinel does not know"),
            (cluster.url, 2, "too few replicas ("),
        ):
            risks = asyncio.run(fetch_risks(url, replicas))  # the node may be a replica by now
            (risk,) = [risk for risk in risks if mistake in str(risk)]
            assert forbids(risk, allow_volatile=True)
        assert asyncio.run(fetch_risks(cluster.url, None)) == []
        for command in ("serve", "drain"):
            done = run(
                {
                    "SNAPBID_REDIS_URL": f"redis+cluster://{plain.address}",
                    "SNAPBID_DATABASE_URL": database,
                    "SNAPBID_JWT_SECRET": JWT_SECRET,
                },
                command,
            )
            assert done.returncode == 2
            assert "is not a node of a cluster" in done.stderr


def test_the_permissions_of_a_user_of_a_cluster(cluster: Cluster) -> None:
    def allow(*permissions: str) -> None:
        for node in cluster.nodes:
            node.call("ACL SETUSER", "app", "reset", "on", ">secret", *permissions)

    url = cluster.url.replace("//", "//app:secret@")
    try:
        allow(*PERMISSIONS)
        assert asyncio.run(fetch_risks(url, None)) == []
        asyncio.run(_write(url))
        for needed in ("+info", "+cluster|nodes"):
            allow(*(each for each in PERMISSIONS if each != needed))
            with pytest.raises(NoPermissionError, match=needed[1:].partition("|")[0]):
                asyncio.run(fetch_risks(url, None))
    finally:
        for node in cluster.nodes:
            node.call("ACL DELUSER", "app")


async def _write(url: str) -> None:
    """Write to each shard, and find that it has a replica."""
    connections = Connections(url)
    redis = connections.client()
    for number in range(SHARDS):
        keys = ShardKeys(number)
        await redis.set(keys.mark, "")
        await connections.replicate(redis, keys)
        assert connections.demand.replicas == 1
    await redis.aclose()
