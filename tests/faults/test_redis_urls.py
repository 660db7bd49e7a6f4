"""What SNAPBID_REDIS_URL says is held against what is there (contract 10)."""

import asyncio
import contextlib

import pytest
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
            (f"redis://{node}", None, "names one Redis, but that is a node of a cluster"),
            (f"redis+cluster://{plain.address}", None, f"{plain.address}, which is not a node"),
            (f"redis+cluster://{node},{plain.address}", None, f"{plain.address}, which is not"),
            (f"redis+cluster://{node},{lonely.address}", None, f"{lonely.address}, which belongs"),
            (f"redis+cluster://{lonely.address}", 0, "no primary that is up has slots"),
            (f"redis+cluster://{sentinel.address}", None, f"{sentinel.address}, which is not"),
            (f"redis://{sentinel.address}", None, "names one Redis, but that is a sentinel"),
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


@pytest.mark.parametrize(
    ("option", "value", "cut"),
    [
        ("cluster-replica-validity-factor", 0, "for any time ("),
        ("cluster-replica-validity-factor", 10, "for up to 16 s ("),
        ("cluster-node-timeout", 2000, "for up to 21 s ("),
        ("repl-timeout", 60, "for up to 69 s ("),
        ("repl-ping-replica-period", 10, "for up to 22 s ("),
    ],
)
def test_a_replica_that_may_be_promoted_late_is_named(
    cluster: Cluster, option: str, value: int, cut: str
) -> None:
    """It would lack what was acknowledged without it."""
    node = cluster.nodes[-1]
    usual = node.call("CONFIG", "GET", option)[option]
    node.call("CONFIG", "SET", option, value)
    try:
        (risk,) = asyncio.run(fetch_risks(cluster.url, None))
        assert (risk.name, risk.severity) == ("promotion", "weak")
        assert f"a replica that was cut off {cut}{node.address})" in risk.text
        assert asyncio.run(fetch_risks(cluster.url, 1)) == []
    finally:
        node.call("CONFIG", "SET", option, usual)
