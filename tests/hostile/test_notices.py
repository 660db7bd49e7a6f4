"""Who knows an SSP's id and an auction's ids writes nobody's bill (contract 4 and 5)."""

import asyncio
import itertools
import json
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from support.commands import succeed
from support.http import ask_on, connected
from support.ops import samples
from support.processes import eventually
from support.remembered import counts, looking
from support.stack import Stack, fetch

from snapbid.ledger.bids.records import family_of
from snapbid.operations.reconcile.claims import Form
from snapbid.operations.reconcile.compare import Comparison, Terms

JSON = {"Content-Type": "application/json"}
MARKUP = {"media": "banner", "w": 300, "h": 250, "adm": "<p></p>"}
CAMPAIGN = {"id": "spring", "advertiser": "brand.example", "cpm": 2, "creatives": [
    {"id": "a", **MARKUP}]}  # fmt: skip
AUCTIONS = itertools.count(1)
Bid = dict[str, Any]


@pytest.fixture
def start(database: str, start_stack: Callable[..., Stack]) -> Callable[..., Stack]:
    """Starts a server with the SSPs `victim`, its variant `victim-eu`, and `thief`."""
    environ = {"SNAPBID_DATABASE_URL": database}
    for added in (("victim",), ("victim-eu", "--canonical", "victim"), ("thief",)):
        succeed(environ, "ssp", "add", *added)
    succeed(environ, "campaign", "import", "-", input=json.dumps(CAMPAIGN))

    def start(**settings: str) -> Stack:
        return start_stack(SNAPBID_TRUSTED_PROXIES="127.0.0.1", **settings)

    return start


def ask(client: HTTPConnection, ssp: str, auction: str, **headers: str) -> Bid | None:
    body = {"id": auction, "imp": [{"id": "1", "banner": {"w": 300, "h": 250}}], "tmax": 60_000}
    path = f"/api/v1/openrtb2/{ssp}/bid"
    reply = ask_on(client, "POST", path, json.dumps(body).encode(), JSON | headers)
    return reply.json()["seatbid"][0]["bid"][0] if reply.status == 200 else None


def fire(client: HTTPConnection, url: str, **headers: str) -> int:
    path = url[url.index("/", len("http://")) :] if url.startswith("http") else url
    return ask_on(client, "GET", path, headers=headers).status


def of_ssp(stack: Stack, field: str) -> dict[str, int]:
    """A counter of the ledger by the SSPs' descriptors."""
    names = {str(number): name for name, number in numbers(stack).items()}
    with looking(stack.environ["SNAPBID_REDIS_URL"]) as store:
        (of_day,) = counts(store).values()
    split = [(name.split(":"), value) for name, value in of_day.items()]
    return {names[parts[1]]: value for parts, value in split if parts[0] == field}


def await_counted(stack: Stack, field: str, wanted: dict[str, int]) -> None:
    """A notice that a busy machine has spooled is answered before it counts."""
    eventually(lambda: of_ssp(stack, field) == wanted, f"{field} is {wanted}")


def numbers(stack: Stack) -> dict[str, int]:
    dsn = stack.environ["SNAPBID_DATABASE_URL"]
    return dict(asyncio.run(fetch(dsn, "select descriptor, number from ssp_number")))


def test_an_auction_stays_with_the_ssp_that_opened_it(start: Callable[..., Stack]) -> None:
    stack = start()
    with connected(stack.port) as client:
        won = ask(client, "victim", "open")
        assert won is not None
        assert ask(client, "thief", "open") is None
        assert fire(client, won["nurl"]) == fire(client, won["burl"]) == 200
        again = ask(client, "victim-eu", "open")
        assert again is not None, "variants of one SSP share their auctions"
        assert fire(client, again["nurl"]) == 200
    await_counted(stack, "w", {"victim": 1, "victim-eu": 1})
    assert of_ssp(stack, "b") == {"victim": 1, "victim-eu": 1}
    outcomes: Any = samples(stack)["snapbid_bid_requests_total"]
    assert outcomes[(("outcome", "taken"), ("ssp", "thief"))] == 1


@pytest.mark.parametrize("by", ["setting", "ssp"])
def test_a_forged_notice_counts_nothing_where_notices_are_signed(
    start: Callable[..., Stack], by: str
) -> None:
    stack = start(**({"SNAPBID_SIGNED_NOTICES": "1"} if by == "setting" else {}))
    if by == "ssp":
        succeed(stack.environ, "ssp", "set", "victim", "--signed-notices")
    with connected(stack.port) as client:
        await_signed(client)
        made, thieves = ask(client, "victim", "x"), ask(client, "thief", "x")
        assert made is not None
        assert thieves is not None, "both may bid: their notices can be told apart"
        token = made["nurl"].split("/n/")[1].split("/")[0]
        altered = token[:-1] + ("B" if token[-1] == "A" else "A")
        for url in (
            "/rtb/win?id=x&impId=1" if by == "setting" else f"/n/{'A' * 20}/rtb/win?id=x&impId=1",
            f"/n/{altered}/rtb/win?id=x&impId=1",
            f"/n/{token}/rtb/win?id=y&impId=1",
            f"/n/{token}A/rtb/win?id=x&impId=1",
        ):
            assert fire(client, url) == 200, "a forger learns nothing"
        assert fire(client, f"/n/{token}/rtb/what?id=x&impId=1") == 404
        assert of_ssp(stack, "w") == {}
        for url in (made["nurl"], made["burl"], made["nurl"]):
            assert url.startswith(f"{stack.base_url}/n/{token}/rtb/")
            assert url.endswith("?id=x&impId=1")
            assert fire(client, url) == 200
        assert fire(client, made["lurl"].replace("${AUCTION_LOSS}", "102")) == 200
        await_counted(stack, "w", {"victim": 1})
        assert fire(client, thieves["nurl"]) == 200
    await_counted(stack, "w", {"victim": 1, "thief": 1})
    await_counted(stack, "i", {"victim": 1})
    unsigned: Any = samples(stack)["snapbid_notices_total"]
    assert unsigned[(("kind", "win"), ("outcome", "unsigned"))] == 4


def await_signed(client: HTTPConnection) -> None:
    def signed() -> bool:
        made = ask(client, "victim", f"s{next(AUCTIONS)}")
        return made is not None and "/n/" in made["nurl"]

    eventually(signed, "the victim's bids are signed")


def test_a_plain_id_never_names_a_signed_bid(start: Callable[..., Stack]) -> None:
    """The ledger names a signed bid by its family, which anybody can compute, and its id."""
    stack = start()
    succeed(stack.environ, "ssp", "set", "victim", "--signed-notices")
    with connected(stack.port) as client:
        await_signed(client)
        made = ask(client, "victim", "x")
        assert made is not None
        name = quote(family_of("victim") + b"x", safe="")
        for id in (name, quote(name, safe="")):
            for kind in ("win", "bill", "loss"):
                assert fire(client, f"/rtb/{kind}?id={id}&impId=1&nbr=203") == 200
        assert of_ssp(stack, "w") == of_ssp(stack, "i") == of_ssp(stack, "l") == {}
        assert fire(client, made["nurl"]) == 200
    await_counted(stack, "w", {"victim": 1})
    counted: Any = samples(stack)
    assert counted["snapbid_notices_total"][(("kind", "win"), ("outcome", "unsigned"))] == 2


def test_a_signed_win_is_its_own_ssps_in_the_auction_log(
    start: Callable[..., Stack], tmp_path: Path
) -> None:
    """Two SSPs bid on the same ids, and one of them wins: the other has nothing to claim."""
    auctions, log = tmp_path / "auctions", tmp_path / "log.csv"
    stack = start(SNAPBID_SIGNED_NOTICES="1", SNAPBID_AUCTION_LOG=str(auctions))
    with connected(stack.port) as client:
        for ssp in ("victim", "thief"):
            made = ask(client, ssp, "x")
            assert made is not None
            if ssp == "victim":
                assert fire(client, made["nurl"]) == 200
                await_counted(stack, "w", {"victim": 1})
    stack.close()
    log.write_text("auction,imp\nx,1\n")

    def disputed(ssp: str) -> list[str]:
        comparison = Comparison(Terms(ssp, frozenset({ssp}), lambda currency, day: None))
        form = Form({"price": "", "time": ""})
        return [dispute.cause for dispute in comparison.disputes(log, form, auctions)]

    assert disputed("victim") == []
    assert disputed("thief") == ["notice_missing"]


def test_outsiders_suspend_no_creative_of_an_ssp_with_networks(start: Callable[..., Stack]) -> None:
    """Sixty bids that all were lost for code 203: from elsewhere nothing, from the SSP a count."""
    stack = start()
    succeed(stack.environ, "ssp", "set", "victim", "--allow", "198.51.100.0/24")
    own, other = {"X-Forwarded-For": "198.51.100.7"}, {"X-Forwarded-For": "203.0.113.9"}

    def rejected() -> int:
        with looking(stack.environ["SNAPBID_REDIS_URL"]) as store:
            return int(store.hlen("{sb0}:rejected"))

    def lose(client: HTTPConnection, source: dict[str, str], times: int) -> None:
        for _ in range(times):
            ask(client, "victim", auction := f"l{next(AUCTIONS)}", **own)
            assert fire(client, f"/rtb/loss?id={auction}&impId=1&nbr=203", **source) == 200

    with connected(stack.port) as client:

        def is_narrowed() -> bool:
            return ask(client, "victim", f"n{next(AUCTIONS)}") is None

        eventually(is_narrowed, "the SSP has networks")
        lose(client, other, 60)
        lose(client, own, 1)
        eventually(lambda: rejected() == 1, "what the SSP says counts")
        lose(client, other, 60)
        lose(client, own, 6)

        def counted() -> dict[str, int]:
            with looking(stack.environ["SNAPBID_REDIS_URL"]) as store:
                (of_day,) = counts(store).values()
            kinds = [(name[0], value) for name, value in of_day.items() if name[0] in "rq"]
            return dict(kinds)

        eventually(lambda: counted() == {"q": 66, "r": 6}, "its own six of 66, which suspend none")
