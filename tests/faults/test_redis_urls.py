"""What SNAPBID_REDIS_URL says is held against what is there (contract 10)."""

import asyncio
import contextlib

from support.cluster import Cluster, Sentinel, Server, folder
from support.stack import JWT_SECRET, run

from snapbid.base.risks import forbids
from snapbid.redisclient.arrangement import fetch_risks


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
