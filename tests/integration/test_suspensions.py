"""Creatives that an SSP rejects for what they are are suspended there (contract 11)."""

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.commands import invoke, succeed
from support.ops import ask, data
from support.processes import eventually
from support.remembered import looking
from support.stack import Stack, draining, execute

AUCTIONS = itertools.count(1)
MARKUP = {"media": "banner", "w": 300, "h": 250, "adm": "<p></p>"}
CAMPAIGN: dict[str, Any] = {
    "id": "spring",
    "advertiser": "brand.example",
    "cpm": 2,
    "creatives": [{"id": "good", **MARKUP}, {"id": "bad", **MARKUP}],
}
SEEN = 24  # bids in which both creatives are chosen, but once in some eight million times


@pytest.fixture(scope="module")
def stack(module_database: str, module_stack: Callable[..., Stack]) -> Iterator[Stack]:
    environ = {"SNAPBID_DATABASE_URL": module_database}
    for added in (("acme",), ("acme-eu", "--canonical", "acme"), ("nova",)):
        succeed(environ, "ssp", "add", *added)
    succeed(environ, "campaign", "import", "-", input=json.dumps(CAMPAIGN))
    served = module_stack(SNAPBID_WORKERS="2")
    with draining(served):
        yield served


@pytest.fixture(autouse=True)
def _nothing_is_suspended(stack: Stack, module_database: str) -> Iterator[None]:
    yield
    asyncio.run(execute(module_database, "delete from creative_suspension"))
    eventually(lambda: offered(stack, "acme") == {"good", "bad"}, "all are offered again")


def request(auction: str) -> bytes:
    imp = {"id": "1", "banner": {"w": 300, "h": 250}}
    return json.dumps({"id": auction, "imp": [imp], "tmax": 60_000}).encode()


def bid(stack: Stack, ssp: str) -> Any:
    """A bid, on a connection of its own, so that any worker answers."""
    path = f"/api/v1/openrtb2/{ssp}/bid"
    body = request(f"a{next(AUCTIONS)}")
    status, _, answer = ask(stack, "POST", path, body, content_type="application/json")
    return json.loads(answer)["seatbid"][0]["bid"][0] if status == 200 else {}


def offered(stack: Stack, ssp: str) -> set[str | None]:
    """The creatives that are offered; None stands for no bid."""
    return {bid(stack, ssp).get("crid") for _ in range(SEEN)}


def bids_of(stack: Stack, ssp: str, creative: str) -> Iterator[Any]:
    return (made for _ in itertools.count() if (made := bid(stack, ssp)).get("crid") == creative)


def lose(stack: Stack, made: Any, reason: int, times: int = 1) -> None:
    url = made["lurl"].replace("${AUCTION_LOSS}", str(reason)).removeprefix(stack.base_url)
    for _ in range(times):
        assert ask(stack, "GET", url)[0] == 200


def suspended(stack: Stack) -> list[Any]:
    return list(json.loads(succeed(stack.environ, "creative", "list", "--json")))


def counted_bids(stack: Stack, ssp: str, creative: str) -> list[Any]:
    """Twenty bids of a creative that the SSP has just rejected for the first time."""
    bids = bids_of(stack, ssp, creative)
    with looking(stack.environ["SNAPBID_REDIS_URL"]) as store:
        before = store.hlen("{sb0}:rejected")
        lose(stack, next(bids), 202)
        eventually(lambda: store.hlen("{sb0}:rejected") > before, "its bids are counted")
    return list(itertools.islice(bids, 20))


def test_a_creative_that_an_ssp_rejects_is_suspended(stack: Stack) -> None:
    """At all of the SSP's descriptors, and nowhere else."""
    for ssp, creative, losses in (("nova", "good", 3), ("acme-eu", "bad", 5)):
        for made in counted_bids(stack, ssp, creative)[:losses]:
            lose(stack, made, 213)
    eventually(lambda: suspended(stack) != [], "a creative is suspended")
    eventually(lambda: offered(stack, "acme") == {"good"}, "the workers know")
    assert offered(stack, "acme-eu") == {"good"}
    assert offered(stack, "nova") == {"good", "bad"}
    (row,) = suspended(stack)
    assert (row["ssp"], row["campaign"], row["creative"]) == ("acme", "spring", "bad")
    assert row["losses"] in (4, 5), "four of twenty are a fifth, and may be seen before the next"
    assert row["until"] - row["since"] == 86_400


def test_suspensions_are_listed_and_can_be_lifted(stack: Stack, module_database: str) -> None:
    suspend(module_database, "good")
    suspend(module_database, "bad")
    eventually(lambda: offered(stack, "acme") == {None}, "both are suspended")
    assert offered(stack, "nova") == {"good", "bad"}
    row = succeed(stack.environ, "campaign", "list").splitlines()[1]
    assert row.endswith("\tbad at acme, good at acme")
    listed = succeed(stack.environ, "creative", "list")
    assert "spring\tbad\tacme\t202, Disapproved by Exchange\t3\t" in listed
    explained = explain(stack, "acme")
    assert "1 of 1: creative suspended" in explained
    explained = explain(stack, "acme", "--campaign", "spring")
    refused = "REFUSES  creative suspended [loss 202, Creative Filtered - Disapproved by Exchange]"
    assert refused in explained
    assert "3 losses at acme, until 2" in explained
    assert "REFUSES" not in explain(stack, "nova", "--campaign", "spring")
    eventually(lambda: (data(stack)["suspended"] or 0) == 2, "the page has both")
    shown = data(stack)["suspensions"][0]
    assert (shown["campaign"], shown["creative"], shown["ssp"]) == ("spring", "bad", "acme")
    assert shown["means"] == "Disapproved by Exchange"

    done = succeed(stack.environ, "creative", "resume", "spring", "bad", "--ssp", "acme")
    assert done == "spring bad: offered to acme again\n"
    eventually(lambda: offered(stack, "acme") == {"bad"}, "one is offered again")
    again = invoke(stack.environ, "creative", "resume", "spring", "bad")
    assert (again.returncode, again.stderr) == (
        1,
        "there is no suspended creative 'bad' in campaign 'spring'\n",
    )
    trail = json.loads(succeed(stack.environ, "audit", "spring", "--kind", "creative", "--json"))
    assert [entry["action"] for entry in trail][-3:] == ["suspended", "suspended", "resumed"]
    assert trail[-1]["detail"]["creative"] == ["bad", None]
    assert trail[-1]["actor"] is not None


def test_suspensions_expire(stack: Stack, module_database: str) -> None:
    suspend(module_database, "bad")
    eventually(lambda: offered(stack, "acme") == {"good"}, "it is suspended")
    soon = "update creative_suspension set until = now() + interval '3 seconds'"
    asyncio.run(execute(module_database, soon))
    eventually(lambda: offered(stack, "acme") == {"good", "bad"}, "it is tried again")
    assert suspended(stack) == []


def test_a_changed_creative_is_offered_again(stack: Stack, module_database: str) -> None:
    for creative in ("good", "bad"):
        suspend(module_database, creative)
    eventually(lambda: offered(stack, "acme") == {None}, "both are suspended")
    good, bad = CAMPAIGN["creatives"]
    changed = {**CAMPAIGN, "cpm": 3, "creatives": [good, {**bad, "adm": "<b></b>"}]}
    succeed(stack.environ, "campaign", "import", "-", input=json.dumps(changed))
    assert [each["creative"] for each in suspended(stack)] == ["good"]
    eventually(lambda: offered(stack, "acme") == {"bad"}, "the workers know")
    row = succeed(stack.environ, "campaign", "list").splitlines()[1]
    assert row.endswith("\tgood at acme")
    succeed(stack.environ, "campaign", "import", "-", input=json.dumps(CAMPAIGN))


def test_rejections_count_for_the_creative_that_was_shown(
    stack: Stack, module_database: str
) -> None:
    """Creatives that come, go and change places in the meantime change nothing."""
    made = counted_bids(stack, "acme", "bad")
    creatives = [{"id": "new", **MARKUP}, {"id": "bad", **MARKUP}, {"id": "good", **MARKUP}]
    changed = {**CAMPAIGN, "creatives": creatives}
    succeed(stack.environ, "campaign", "import", "-", input=json.dumps(changed))
    for each in made[:5]:
        lose(stack, each, 210)
    eventually(
        lambda: [each["creative"] for each in suspended(stack)] == ["bad"], "it is suspended"
    )
    succeed(stack.environ, "campaign", "import", "-", input=json.dumps(CAMPAIGN))


def suspend(dsn: str, creative: str) -> None:
    """What an operator may do in SQL."""
    statement = (
        "insert into creative_suspension (ssp, campaign, creative, reason, losses, since, until)"
        " values ('acme', 'spring', $1, 202, 3, now(), now() + interval '1 hour')"
    )
    asyncio.run(execute(dsn, statement, creative))


def explain(stack: Stack, ssp: str, *options: str) -> str:
    return succeed(stack.environ, "explain", ssp, "-", *options, input=request("e").decode())
