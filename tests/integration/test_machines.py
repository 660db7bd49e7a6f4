"""Two servers on one cluster and one warehouse are one bidder."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from support.cluster import Cluster
from support.commands import succeed
from support.machines import serving
from support.ops import ask, bid, data, prepare
from support.processes import eventually
from support.stack import Stack

CREATIVE = {"id": "c", "media": "banner", "w": 333, "h": 444, "adm": "<p></p>"}
REJECTED = {"id": "rejected", "advertiser": "a.example", "cpm": 1, "creatives": [CREATIVE]}


@pytest.fixture
def machines(cluster: Cluster, module_database: str, tmp_path: Path) -> Iterator[list[Stack]]:
    prepare(module_database)
    with serving(cluster, module_database, tmp_path) as served:
        yield served
        assert all("Traceback" not in each.output for each in served)


def a_notice_counts_once(machines: list[Stack], kind: str, path: str, counted: str) -> None:
    """At whichever machine, and even if one of them has to spool it at first."""
    first, second = machines
    assert first.get(path)[0] == 200
    eventually(lambda: [ssp[counted] for ssp in data(first)["ssps"]] == [1], f"{counted} is 1")
    duplicate = f'snapbid_notices_total{{kind="{kind}",outcome="duplicate"}} 1'

    def is_duplicate() -> bool:
        assert second.get(path)[0] == 200
        return duplicate.encode() in second.get("/metrics", ops=True)[1]

    eventually(is_duplicate, duplicate)


def is_whole(machine: Stack) -> bool:
    status, body = machine.get("/readyz")
    return status == 200 and b"unavailable" not in body


def a_creative_is_suspended_on_both(machines: list[Stack], database: str) -> None:
    """Losses at either machine count together; a suspension and its end reach both."""
    environ = {"SNAPBID_DATABASE_URL": database}
    auctions = itertools.count()

    def offered(machine: Stack) -> Any:
        imp = {"id": "1", "banner": {"w": 333, "h": 444}}
        status, _, body = bid(machine, f"suspend-{next(auctions)}", imp=[imp])
        return json.loads(body)["seatbid"][0]["bid"][0] if status == 200 else None

    def rejects(machine: Stack, other: Stack) -> bool:
        """Reject what one machine offers at the other; return whether it offers something."""
        made = offered(machine)
        if made is not None:
            lurl = urlsplit(made["lurl"].replace("${AUCTION_LOSS}", "202"))
            assert ask(other, "GET", f"{lurl.path}?{lurl.query}")[0] == 200
        return made is not None

    succeed(environ, "campaign", "import", "-", input=json.dumps(REJECTED))
    eventually(lambda: all(map(offered, machines)), "both offer it")
    first, second = machines
    eventually(
        lambda: not rejects(first, second) and not rejects(second, first), "suspended on both"
    )
    succeed(environ, "creative", "resume", "rejected")
    eventually(lambda: all(map(offered, machines)), "both offer it again")


def test_two_machines_are_one_bidder(
    cluster: Cluster, machines: list[Stack], module_database: str
) -> None:
    eventually(lambda: bid(machines[0], "shared")[0] == 200, "a bid")
    a_notice_counts_once(machines, "win", "/rtb/win?id=shared&impId=1", "wins_today")
    a_creative_is_suspended_on_both(machines, module_database)
    cluster.nodes[0].kill()
    cluster.heal()
    eventually(lambda: all(map(is_whole, machines)), "a ledger that is whole")
    a_notice_counts_once(machines, "billing", "/rtb/bill?id=shared&impId=1", "imps_today")
