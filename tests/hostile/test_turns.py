"""A flood of what is cheap to send: bids, and questions whether a worker is well, overtake it.

What is fair is seen in the order of the answers: how many of the flood's there are between a
request and its answer.
"""

from statistics import median

import pytest
from support.bystander import REQUEST
from support.flood import Flood
from support.ops import samples
from support.stack import Stack
from support.wire import Wire, head

LANES = 1_500
UNKNOWN_NOTICE = "/rtb/win?id=nobodys-%d&impId=1"
UNKNOWN_PATH = "/nowhere/%d"
HEALTH = head("GET", "/healthz", {"host": "x"})
READY = head("GET", "/readyz", {"host": "x"})


def overtaken(flood: Flood, port: int, request: bytes) -> float:
    """How many requests of the flood are answered before one other request."""
    behind = []
    with Wire(port) as wire:
        for _ in range(15):
            before = flood.answers
            wire.write(request)
            assert wire.read().status == 200
            behind.append(flood.answers - before)
    return median(behind)


@pytest.mark.parametrize("target", [UNKNOWN_NOTICE, UNKNOWN_PATH], ids=["notices", "paths"])
def test_bids_overtake_a_flood(server: Stack, target: str) -> None:
    with Flood(server.port, target, LANES) as flood:
        for request in (REQUEST, HEALTH, READY):
            assert overtaken(flood, server.port, request) < LANES / 3
            flood.has_come(LANES)
    notices = samples(server)["snapbid_notices_total"]
    assert not [each for each, count in notices.items() if ("outcome", "spooled") in each and count]
