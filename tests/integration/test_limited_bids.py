"""Bids of campaigns with budgets and caps, from the request to the answer."""

import asyncio
import json
import os
import signal
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from support.campaigns import put
from support.client import LocalApp
from support.http import Reply
from support.processes import eventually, listening, workers_of
from support.remembered import counts, looking, opened
from support.snapshot import snapshot_of
from support.spending import bid_request
from support.stack import Stack, connected, run

from snapbid.bidding.snapshot import CatalogSnapshot
from snapbid.ledger.bids.records import LOSS, NoticeVerdict
from snapbid.reference.geo import GeoDatabase
from snapbid.reference.rates import Rates
from snapbid.warehouse import campaigns

SIZES = {"small": (300, 250), "wide": (728, 90)}
HOUR_CAP = [{"impressions": 1, "seconds": 3600}]
NOTHING = 204


def campaign(name: str, cpm: float, *sizes: str, **more: Any) -> dict[str, Any]:
    creatives = [
        {"id": size, "media": "banner", "w": SIZES[size][0], "h": SIZES[size][1], "adm": "<p></p>"}
        for size in sizes or ("small",)
    ]
    return {"id": name, "advertiser": "shop.example", "cpm": cpm, "creatives": creatives, **more}


def snapshot(*documents: dict[str, Any]) -> CatalogSnapshot:
    rates = Rates({"USD": Fraction(1)}, datetime.now(UTC).date())
    ssps = {"acme": "acme", "other": "other"}
    return snapshot_of(documents, ssps, rates, GeoDatabase())


def answer(app: LocalApp, auction: str, *sizes: str, ssp: str = "acme", **more: Any) -> Any:
    """The campaigns that bid, by impression; NOTHING for a 204."""
    request = bid_request(auction, [SIZES[size] for size in sizes or ("small",)], **more)
    return bids_on(app.bid(json.dumps(request).encode(), ssp))


def bids_on(reply: Reply) -> Any:
    if reply.status != 200:
        return reply.status
    bids = [bid for seat in reply.json()["seatbid"] for bid in seat["bid"]]
    return {bid["impid"]: bid["cid"] for bid in bids}


def test_the_next_best_answers_for_one_without_money(fresh_redis: str) -> None:
    rich = snapshot(
        campaign("a", 3, budget={"total": 0.006}),
        campaign("b", 2, budget={"daily": 0.002}),
        campaign("c", 1),
    )
    with LocalApp(rich, fresh_redis) as app:
        answers = [answer(app, f"{number}") for number in range(5)]
    assert [won["1"] for won in answers] == ["a", "a", "b", "c", "c"]
    assert len(rich.refused) == 2
    with looking(fresh_redis) as store:
        (of_day,) = counts(store).values()
    assert of_day == {"b:1": 5, "B:1": 2, "B:2": 1, "B:3": 2}


def test_without_money_there_is_no_bid(fresh_redis: str) -> None:
    poor = snapshot(campaign("a", 3, budget={"total": 0.001}))
    with LocalApp(poor, fresh_redis) as app:
        assert [answer(app, str(number)) for number in range(3)] == [NOTHING] * 3
    with looking(fresh_redis) as store:
        assert counts(store) == {}


async def _lose(url: str, spool: Path, auctions: Iterable[str]) -> None:
    async with opened(url, spool) as ledger:
        for auction in auctions:
            assert await ledger.settle(LOSS, auction.encode(), b"1", 1) == NoticeVerdict.COUNTED


def test_an_ssp_that_was_refused_after_another_gets_half(fresh_redis: str, tmp_path: Path) -> None:
    """The worker knows that there is no budget, but the ledger must hear of who asks for it."""
    only = snapshot(campaign("a", 2, budget={"total": 0.2}))
    with LocalApp(only, fresh_redis) as app:

        def bids(ssp: str, times: int) -> list[str]:
            auctions = [f"{ssp} {next(numbers)}" for _ in range(times)]
            return [each for each in auctions if answer(app, each, ssp=ssp) != NOTHING]

        numbers = count()
        held = bids("acme", 110)
        assert len(held) == 100
        assert not bids("other", 1)
        asyncio.run(_lose(fresh_redis, tmp_path, held))
        only.reactivate(None)
        assert len(bids("acme", 110)) == 50
        assert len(bids("other", 110)) == 50
        assert not bids("acme", 1)
        assert only.is_refused_by_all(0, 2_000_000)


def test_each_impression_of_a_request_falls_back_by_itself(fresh_redis: str) -> None:
    """In the order of the request, whichever impression was refused."""
    some = snapshot(
        campaign("a", 5, "small", budget={"total": 0.005}),
        campaign("b", 4, "small", "wide", budget={"total": 0.008}),
        campaign("c", 1, "small"),
        campaign("d", 1, "wide"),
    )
    sizes = ("small", "wide", "small")
    with LocalApp(some, fresh_redis) as app:
        assert answer(app, "1", *sizes) == {"1": "a", "2": "b", "3": "b"}
        assert answer(app, "2", *sizes) == {"1": "c", "2": "d", "3": "c"}
    with looking(fresh_redis) as store:
        (of_day,) = counts(store).values()
    assert of_day == {"b:1": 2, "B:1": 1, "B:2": 2, "B:3": 2, "B:4": 1}


def film(name: str, advertiser: str, cpm: float, **more: Any) -> dict[str, Any]:
    creative = {"id": "15s", "media": "video", "duration": 15, "adm": "<VAST/>"}
    return campaign(name, cpm, advertiser=advertiser, creatives=[creative], **more)


POOR: dict[str, Any] = {"budget": {"total": 0.000001}}


@pytest.mark.parametrize(
    ("campaigns", "answers"),
    [
        (
            [film("a", "a.test", 9, **POOR), film("b", "b.test", 8), film("c", "c.test", 6)],
            {"1": "c", "2": "b"},
        ),
        (  # another campaign of the advertiser whose bid was refused
            [film("a", "a.test", 9, **POOR), film("b", "b.test", 8), film("a2", "a.test", 7)],
            {"1": "a2", "2": "b"},
        ),
        (  # both are refused, and the advertisers change places
            [
                film("a", "a.test", 9, **POOR),
                film("b", "b.test", 8, **POOR),
                film("b2", "b.test", 7),
                film("a2", "a.test", 6),
            ],
            {"1": "b2", "2": "a2"},
        ),
        ([film("a", "a.test", 9, **POOR), film("b", "b.test", 8)], {"2": "b"}),
    ],
)
def test_replacements_keep_the_advertisers_of_a_pod_apart(
    campaigns: list[dict[str, Any]], answers: dict[str, str], fresh_redis: str
) -> None:
    imps = [{"id": id, "video": {"podid": "p"}} for id in ("1", "2")]
    with LocalApp(snapshot(*campaigns), fresh_redis) as app:
        assert bids_on(app.bid(json.dumps({"id": "a", "imp": imps}).encode())) == answers


def screen(app: LocalApp, auction: str, quantity: Any = None) -> Any:
    """The answer to an impression that so many see."""
    qty = {} if quantity is None else {"qty": {"multiplier": quantity}}
    imp = {"id": "1", "banner": {"w": 300, "h": 250}, **qty}
    return bids_on(app.bid(json.dumps({"id": auction, "imp": [imp], "dooh": {}}).encode()))


def test_a_hold_is_the_cost_of_all_that_an_impression_stands_for(fresh_redis: str) -> None:
    """A budget of 100 plain bids pays for 7 of 14.2 impressions, and half a plain one."""
    rich = snapshot(campaign("a", 2, budget={"total": 0.2}), campaign("b", 1))
    with LocalApp(rich, fresh_redis) as app:
        assert [screen(app, f"{n}", 14.2)["1"] for n in range(8)] == ["a"] * 7 + ["b"]
        with looking(fresh_redis) as store:
            assert store.hget("{sb0}:m:1", "t") == b"198800000"
        assert screen(app, "half", 0.5) == {"1": "a"}
        assert screen(app, "plain") == {"1": "b"}


def test_a_cost_beyond_the_budget_stops_no_plain_bids(fresh_redis: str) -> None:
    """What has no budget for many impressions may have it for one, until it hasn't."""
    rich = snapshot(campaign("a", 2, budget={"total": 0.02}), campaign("b", 1))
    with LocalApp(rich, fresh_redis) as app:
        for n in range(10):
            assert screen(app, f"many {n}", 11) == {"1": "b"}
            assert (
                rich.is_refused_by_all(0, 21_999_999, "acme"),
                rich.is_refused_by_all(0, 22_000_000, "acme"),
            ) == (0, 1)
            assert screen(app, f"one {n}") == {"1": "a"}
        assert screen(app, "11") == {"1": "b"}
        assert rich.is_refused_by_all(0, 2_000_000, "acme")


def test_campaigns_known_to_be_too_dear_take_no_attempts(fresh_redis: str) -> None:
    """More of them than a request has attempts stand before the one that has budget."""
    poor = [campaign(f"p{n}", 9 - n / 10, budget={"total": 0.09}) for n in range(9)]
    rich = snapshot(*poor, campaign("z", 1))
    with LocalApp(rich, fresh_redis) as app:
        answers = [screen(app, f"{n}", 100) for n in range(4)]
        assert screen(app, "plain") == {"1": "p0"}
    assert answers[0] == NOTHING
    assert answers[-1] == {"1": "z"}


def test_caps_and_their_users(fresh_redis: str) -> None:
    some = snapshot(campaign("capped", 9, frequency_caps=HOUR_CAP), campaign("free", 1))
    person: dict[str, Any] = {"user": {"id": "u1"}}
    with LocalApp(some, fresh_redis) as app:
        assert answer(app, "1", **person) == {"1": "capped"}
        assert answer(app, "2", **person) == {"1": "free"}
        assert answer(app, "3", "small", "small", user={"id": "u2"}) == {"1": "capped", "2": "free"}
        assert answer(app, "4") == {"1": "free"}
        private: dict[str, Any] = {"user": {"id": "u3"}, "regs": {"coppa": 1}}
        assert answer(app, "5", **private) == {"1": "free"}
        assert answer(app, "6", user={"id": "u3"}, device={"dnt": 1}) == {"1": "free"}
        assert answer(app, "7", user={"id": "u3"}) == {"1": "capped"}


def test_a_test_is_limited_but_uses_nothing_up(fresh_redis: str) -> None:
    some = snapshot(
        campaign("a", 3, budget={"total": 0.003}, frequency_caps=HOUR_CAP), campaign("b", 1)
    )
    person: dict[str, Any] = {"user": {"id": "u"}}
    with LocalApp(some, fresh_redis) as app:
        for number in range(5):
            assert answer(app, f"t{number}", test=1, **person) == {"1": "a"}
        assert answer(app, "1", **person) == {"1": "a"}
        assert answer(app, "t", test=1, **person) == {"1": "b"}
        assert answer(app, "t", test=1, user={"id": "another"}) == {"1": "b"}
    with looking(fresh_redis) as store:
        (of_day,) = counts(store).values()
    assert of_day == {"b:1": 1, "B:1": 1}


def test_shards_refuse_one_by_one() -> None:
    some = snapshot(campaign("a", 1, budget={"daily": 1}))
    some.shards = 2
    some.refuse(0, 1, 1_000_000)
    assert some.is_refused(0, 1, 1_000_000)
    assert not some.is_refused(0, 0, 1_000_000)


# -- a served system ------------------------------------------------------------------------------


def ask(stack: Stack, auction: str, **more: Any) -> tuple[int, str]:
    body = json.dumps(bid_request(auction, **more)).encode()
    request = urllib.request.Request(
        f"{stack.base_url}/api/v1/openrtb2/acme/bid", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as reply:
        content = reply.read()
        return reply.status, json.loads(content)["seatbid"][0]["bid"][0]["cid"] if content else ""


@pytest.mark.long
async def test_budgets_of_a_served_system(
    database: str, fresh_redis: str, start_stack: Callable[..., Stack]
) -> None:
    """Two workers, a budget of 50 bids; then more money; then a look at the list."""
    await put(
        database, campaign("a", 2, budget={"total": 0.1, "daily": 1}), campaign("b", 1), ssp="acme"
    )
    holds = {"SNAPBID_HOLD_S": "3600"}  # as long as a slow machine may take
    stack = start_stack(SNAPBID_WORKERS="2", **holds)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: ask(stack, f"x{number}"), range(120)))
    assert [reply for reply in answers if reply == (200, "a")] == [(200, "a")] * 50
    assert answers.count((200, "b")) == 70
    environ = {"SNAPBID_DATABASE_URL": database, "SNAPBID_REDIS_URL": fresh_redis} | holds
    _, *listed = run(environ, "campaign", "list").stdout.splitlines()
    zero = "0.000000"
    assert listed[0].split("\t")[6:] == ["asap", zero, zero, "0.100000", "0.900000", zero, ""]
    assert listed[1].split("\t")[6:] == [""] * 7
    with urllib.request.urlopen(f"{stack.base_url}/rtb/win?id=x{_first(answers)}&impId=1") as reply:
        assert reply.status == 200

    def budget() -> Any:
        (shown,) = json.loads(run(environ, "campaign", "list", "--budgets", "--json").stdout)
        return shown

    eventually(lambda: budget()["spent"] > 0, "the win is counted")
    shown = budget()
    assert (shown["id"], shown["spent"], shown["held"]) == ("a", 0.002, 0.098)
    assert (shown["remaining"], shown["remaining_today"], shown["pacing"]) == (0, 0.9, "asap")
    await put(database, campaign("a", 2, budget={"total": 0.2, "daily": 1}), ssp="acme")
    eventually(lambda: ask(stack, f"y{time.monotonic()}")[1] == "a", "the larger budget")


def _first(answers: list[tuple[int, str]]) -> int:
    return next(number for number, (_, name) in enumerate(answers) if name == "a")


@pytest.mark.long
async def test_workers_reactivate_campaigns_with_headroom(
    database: str, fresh_redis: str, start_stack: Callable[..., Stack]
) -> None:
    """All of them, also in place of one that was killed."""
    await put(database, campaign("a", 2, budget={"total": 0.002}), campaign("b", 1), ssp="acme")
    stack = start_stack(SNAPBID_WORKERS="2", SNAPBID_HOLD_S="3600")
    assert stack.process
    server, numbers = stack.process.pid, count()

    def ask_many() -> set[str]:
        """Who answers, at so many connections that each worker has some."""
        with ThreadPoolExecutor(8) as pool:
            return {name for _, name in pool.map(lambda n: ask(stack, n), auctions())}

    def b_alone_answers() -> bool:
        """A worker that has just started may not bid yet."""
        names = ask_many()
        assert "a" not in names
        return names == {"b"}

    def auctions() -> list[str]:
        return [f"r{next(numbers)}" for _ in range(32)]

    def lose(auction: str) -> None:
        urllib.request.urlopen(f"{stack.base_url}/rtb/loss?id={auction}&impId=1&nbr=102").close()

    def bids_again() -> bool:
        holders.append(f"r{next(numbers)}")
        return ask(stack, holders[-1])[1] == "a"

    def is_replaced(worker: int) -> bool:
        return len(workers_of(server) - {worker}) == 2 == listening(stack.port)

    holders: list[str] = []
    eventually(bids_again, "a bid")
    for _ in range(2):
        eventually(b_alone_answers, "b alone answers")
        killed = workers_of(server).pop()
        os.kill(killed, signal.SIGKILL)
        eventually(partial(is_replaced, killed), "two workers again")
        eventually(b_alone_answers, "b alone answers")
        lose(holders[-1])
        eventually(bids_again, "headroom again")


async def test_campaign_creation_times_are_kept(database: str) -> None:
    async with connected(database) as connection:
        before = datetime.now(UTC)
        await put(database, campaign("a", 2), ssp="acme")
        first = await created(connection)
        await put(database, campaign("a", 3), ssp="acme")
        (stored,) = (await campaigns.fetch_since(connection, 0)).changed
        assert await created(connection) == first
        assert abs(first - before) < timedelta(minutes=1)
        assert stored.created_at_ms == int(first.timestamp() * 1000)


async def created(connection: asyncpg.Connection) -> datetime:
    created_at: datetime = await connection.fetchval("select created_at from campaign")
    return created_at


def test_a_list_without_redis(database: str) -> None:
    result = run({"SNAPBID_DATABASE_URL": database}, "campaign", "list", "--budgets")
    assert result.returncode == 2
    assert result.stderr.startswith(
        "SNAPBID_REDIS_URL is not set and no embedded instance is running in "
    )


@pytest.mark.parametrize("shards", [1, 3])
async def test_a_user_at_many_connections_is_capped(
    start_stack: Callable[..., Stack], database: str, shards: int
) -> None:
    users = 3
    capped = campaign("a", 2, frequency_caps=[{"impressions": 4, "seconds": 86_400}])
    await put(database, capped, campaign("b", 1), ssp="acme")
    stack = start_stack(SNAPBID_WORKERS="2", SNAPBID_LEDGER_SHARDS=str(shards))
    seen: dict[str, int] = {}
    lock = threading.Lock()

    def visit(number: int) -> None:
        user = f"user-{number % users}"
        _, name = ask(stack, f"v{number}", user={"id": user})
        if name == "a":
            with lock:
                seen[user] = seen.get(user, 0) + 1
            urllib.request.urlopen(f"{stack.base_url}/rtb/bill?id=v{number}&impId=1").close()

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(visit, range(300)))
    assert seen == dict.fromkeys((f"user-{n}" for n in range(users)), 4)
