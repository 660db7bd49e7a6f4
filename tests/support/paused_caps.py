"""A campaign with caps, and one without: what bids while a user's shard is unavailable."""

import json
from pathlib import Path

from snapbid.base.redis_keys import shard_of
from support.books import document
from support.capping import users_of
from support.commands import invoke
from support.spending import bid_request
from support.wire import Wire

SIZE = (7, 7)
CAPPED_AND_FREE = [
    document("capped", SIZE, 2_000_000, frequency_caps=[{"impressions": 9, "seconds": 3600}])[1],
    document("free", SIZE, 1_000_000)[1],
]


def capped_answer(port: int, auction: str, user: str) -> str:
    """The campaign that bids for a user on an impression that fits both."""
    body = json.dumps(bid_request(auction, [SIZE], user={"id": user})).encode()
    with Wire(port) as wire:
        json_type = {"content-type": "application/json"}
        reply = wire.ask("POST", "/api/v1/openrtb2/acme/bid", json_type, body)
    assert reply.status in (200, 204)
    return json.loads(reply.body)["seatbid"][0]["bid"][0]["cid"] if reply.body else ""


def assert_caps_pause(
    environ: dict[str, str], port: int, shards: tuple[int, int], number: int, request: Path
) -> None:
    """Fail unless caps pause for users of the first shard alone, which is unavailable.

    `number`: of all shards; `request`: a file to write.
    """
    gone, there = (next(users_of(n, number)).removeprefix("user acme ") for n in shards)
    names = (f"capped-{n}" for n in range(1000))
    auctions = (name for name in names if shard_of(name.encode(), number) == shards[1])
    assert capped_answer(port, next(auctions), gone) == "free"
    assert capped_answer(port, next(auctions), there) == "capped"
    request.write_text(json.dumps(bid_request(next(auctions), [SIZE], user={"id": gone})))
    told = invoke(environ, "explain", "acme", str(request)).stdout
    assert "frequency caps unavailable" in told
    assert "winner" in told
    rules = invoke(environ, "explain", "acme", str(request), "--campaign", "capped").stdout
    assert "the shard with this user's impressions is unavailable" in rules
