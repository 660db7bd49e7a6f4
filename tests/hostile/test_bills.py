"""Nobody writes another's bill: what a win costs is bounded, whatever a request says."""

import json
import urllib.request
from collections import Counter
from contextlib import closing
from typing import Any

import pytest
import redis
from support.bystander import BODY, JSON, PATH
from support.http import ask
from support.processes import eventually
from support.stack import Stack

DEAREST_DEMO = 50_000_000  # nano-USD: no demo campaign pays more than a CPM of 50 USD
REQUEST: dict[str, Any] = json.loads(BODY)


def bid(server: Stack, **changes: Any) -> tuple[int, Any]:
    """Answer document 2's connectivity request with these changes; None removes a member."""
    asked = {name: value for name, value in (REQUEST | changes).items() if value is not None}
    reply = ask(server.port, "POST", PATH, json.dumps(asked).encode(), JSON)
    return reply.status, reply.json() if reply.body else None


def counted(server: Stack) -> tuple[int, int]:
    """The number of wins, and their cost in nano-USD."""
    with closing(redis.from_url(server.environ["SNAPBID_REDIS_URL"])) as store:
        totals = Counter[bytes]()
        for key in store.scan_iter("{sb0}:c:*"):
            counters: Any = store.hgetall(key)
            for field, value in counters.items():
                totals[field[:1]] += int(value)
        return totals[b"w"], totals[b"p"]


@pytest.mark.parametrize("multiplier", [2, 1000, 1001, 1e9, 1e18, 1e308])
@pytest.mark.usefixtures("bystander")
def test_multipliers_do_not_count_for_sites(server: Stack, multiplier: float) -> None:
    imps = [imp | {"qty": {"multiplier": multiplier}} for imp in REQUEST["imp"]]
    wins, cost = counted(server)
    status, answer = bid(server, id=f"bill {multiplier}", imp=imps)
    assert status == 200
    (seat,) = answer["seatbid"]
    for each in seat["bid"]:
        with urllib.request.urlopen(each["nurl"], timeout=60) as pixel:
            assert pixel.status == 200
    more_wins = wins + len(seat["bid"])
    eventually(lambda: counted(server)[0] == more_wins, "the wins are counted")
    more_cost = counted(server)[1]
    assert 0 < more_cost - cost <= DEAREST_DEMO * len(seat["bid"])


@pytest.mark.parametrize("multiplier", [1000.5, 1e9, 1e18, 1e308])
@pytest.mark.usefixtures("bystander")
def test_multipliers_are_bounded(server: Stack, multiplier: float) -> None:
    imps = [imp | {"qty": {"multiplier": multiplier}} for imp in REQUEST["imp"]]
    before = counted(server)
    assert bid(server, id=f"screen {multiplier}", imp=imps, site=None, dooh={}) == (204, None)
    assert counted(server) == before
