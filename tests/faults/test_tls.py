"""A cluster over TLS: what its URL must say, and that everything works through it."""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis.exceptions import ConnectionError
from support.cluster import Cluster, Tls, folder
from support.remembered import opened, remember, settle_all
from support.remembered import until as awaited

from snapbid.queues.queue import EventQueue
from snapbid.redisclient.arrangement import fetch_risks
from snapbid.redisclient.connection import Connections


@pytest.fixture(scope="module")
def secured() -> Iterator[tuple[Cluster, Tls]]:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed, which makes the certificates")
    with folder() as path:
        tls = Tls(path)
        if not tls.is_known():
            pytest.skip("this redis-server was built without TLS (Debian's has it)")
        with Cluster(path, primaries=1, tls=tls) as cluster:
            yield cluster, tls


async def test_a_cluster_over_tls(secured: tuple[Cluster, Tls], tmp_path: Path) -> None:
    cluster, tls = secured
    url = f"{cluster.url.replace('redis+', 'rediss+')}?ssl_ca_certs={tls.authority}"
    assert await fetch_risks(url, None) == []
    async with opened(url, tmp_path / "spool", shards=2, confirmed=False) as ledger:
        for auction in (b"a-1", b"a-2", b"a-3"):
            assert await remember(ledger, auction, (b"1", 1, 1000)) is True
            assert await settle_all(ledger, auction, b"1") == "ccc"
            assert await settle_all(ledger, auction, b"1") == "ddd"
    queue = EventQueue(Connections(url))
    await queue.open()
    await awaited(lambda: queue.connected)
    assert await queue.put(1, "shop", [("ev", b"{}")])
    await queue.close()
    connections = Connections(url)
    async with contextlib.aclosing(connections.client()) as client:
        assert await client.set("key", "value")
    assert connections.demand.replicas == 1


async def test_a_mismatched_url_does_not_connect(
    secured: tuple[Cluster, Tls], tmp_path: Path
) -> None:
    """Without TLS, and with TLS but an authority that did not sign what the nodes show."""
    cluster, _ = secured
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=other", "-keyout",
                    tmp_path / "key", "-out", tmp_path / "other"], check=True,
                   capture_output=True)  # fmt: skip
    secure = cluster.url.replace("redis+", "rediss+")
    for url in (cluster.url, secure, f"{secure}?ssl_ca_certs={tmp_path / 'other'}"):
        with pytest.raises(ConnectionError, match="no node answers"):
            await fetch_risks(url, None)
