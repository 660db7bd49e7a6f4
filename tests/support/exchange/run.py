"""Auctions of a real exchange against `snapbid up`, its notices, and its books."""

import asyncio
import contextlib
import json
import re
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, NamedTuple

from support.exchange.demands import bids_of, faults
from support.exchange.prebid import PrebidServer, prebid_server
from support.exchange.scenarios import BIDDERS, CAMPAIGNS, CASES, Scenario, campaigns, scenarios
from support.stack import Stack, connected, run

SSP: Final = "prebid"
NO_BID: Final = 0  # of seat-non-bid.md
LOST: Final = "102"  # to a higher bid
COUNTED_S: Final = 60.0


class Books(NamedTuple):
    """What an exchange and a report must agree on: answers, wins, impressions, USD."""

    bids: int
    wins: int
    imps: int
    usd: Decimal


class Exchange:
    """Holds auctions, fires notices, and keeps books."""

    def __init__(self, prebid: PrebidServer, prices: dict[str, Decimal]) -> None:
        self._prebid = prebid
        self._prices = prices
        self._counts: Counter[str] = Counter()
        self._usd = Decimal(0)
        self.sent: dict[str, list[tuple[str, dict[str, Any]]]] = {}  # by scenario

    @property
    def books(self) -> Books:
        counts = self._counts
        return Books(counts["bids"], counts["wins"], counts["imps"], self._usd)

    def hold(self, scenario: Scenario, bidder: str) -> list[str]:
        """Hold an auction; returns what the exchange has to complain of."""
        auction = scenario.auction(f"{scenario.name}-{bidder}-{time.time_ns():x}", bidder)
        response = self._prebid.auction(auction)
        ext = response["ext"]
        wrong = [
            f"{kind}: {json.dumps(ext[kind])}" for kind in ("errors", "warnings") if kind in ext
        ]
        wrong += [
            f"non-bid {non_bid['statuscode']} on {non_bid['impid']}"
            for seat in ext.get("seatnonbid", [])
            for non_bid in seat["nonbid"]
            if non_bid["statuscode"] != NO_BID
        ]
        calls = ext["debug"]["httpcalls"].get(bidder, [])
        if not calls:
            wrong.append("the adapter has sent nothing")
        answered = []
        for call in calls:
            request = json.loads(call["requestbody"])
            self.sent.setdefault(scenario.name, []).append((bidder, request))
            if call["status"] == 200:
                answer = json.loads(call["responsebody"])
                wrong += faults(request, answer)
                answered += bids_of(answer)
                self._counts["bids"] += not auction.get("test")
            elif call["status"] != 204:
                wrong.append(f"status {call['status']}: {call['responsebody']}")
        kept = {bid["impid"]: bid["cid"] for bid in bids_of(response)}
        if kept != {bid["impid"]: bid["cid"] for bid in answered}:
            wrong.append(f"kept {kept} of {len(answered)} bids")
        if kept != scenario.bids:
            wrong.append(f"bids {kept}, wanted {scenario.bids}")
        self._notify(answered, counts=not auction.get("test"))
        return wrong

    def _notify(self, bids: Sequence[dict[str, Any]], *, counts: bool) -> None:
        """Fire what a page would: of every fourth bid a loss, of the others win and billing.

        No scenario is DOOH, so a `qty.multiplier` counts as 1.
        """
        for bid in bids:
            self._counts["fired"] += 1
            if self._counts["fired"] % 4 == 0:
                _get(bid["lurl"].replace("${AUCTION_LOSS}", LOST))
                continue
            _get(bid["nurl"])
            _get(bid["burl"])
            if counts:
                self._counts["wins"] += 1
                self._counts["imps"] += 1
                self._usd += self._prices[bid["cid"]] / 1000


def _get(url: str) -> None:
    assert not re.search(r"\$\{", url), url
    with urllib.request.urlopen(url, timeout=30) as answer:
        assert answer.status == 200


def play(binary: Path, checkout: Path) -> tuple[dict[str, list[str]], Exchange, Books]:
    """Play all scenarios; returns the complaints by scenario, the exchange, and the report."""
    played = scenarios()
    extra = [scenario.campaign for scenario in played if scenario.campaign is not None]
    with _instance() as (instance, environ):
        for name in (SSP, *BIDDERS):
            own = name if name == SSP else f"{SSP}-{name}"
            _command(environ, "ssp", "add", own, "--canonical", SSP)
        _command(environ, "campaign", "import", str(CAMPAIGNS))
        _pause_demo(environ)
        for campaign in {campaign["id"]: campaign for campaign in extra}.values():
            run(environ, "campaign", "import", "-", input=json.dumps(campaign))
        _await_campaigns(instance)
        endpoints = {
            name: f"{instance.base_url}/api/v1/openrtb2/{SSP}-{name}/bid" for name in BIDDERS
        }
        known = [*campaigns(), *extra]
        prices = {campaign["id"]: Decimal(str(campaign["cpm"])) for campaign in known}
        with prebid_server(binary, checkout, endpoints) as prebid:
            exchange = Exchange(prebid, prices)
            complaints: dict[str, list[str]] = {}
            for scenario in played:
                complaints[scenario.name] = [
                    f"{bidder}: {wrong}"
                    for bidder in scenario.bidders
                    for wrong in exchange.hold(scenario, bidder)
                ]
        return complaints, exchange, _report(instance, environ, exchange.books)


@contextlib.contextmanager
def _instance() -> Iterator[tuple[Stack, dict[str, str]]]:
    """`snapbid up` in an empty directory, and the settings with which commands reach it."""
    with tempfile.TemporaryDirectory(prefix="snapbid-exchange-") as home:
        instance = Stack({"SNAPBID_HOME": home}, "up")
        with contextlib.closing(instance):
            instance.start()
            lines = _command({"SNAPBID_HOME": home}, "env").splitlines()
            yield instance, dict(line.split("=", 1) for line in lines)


def _command(environ: dict[str, str], *arguments: str) -> str:
    done = run(environ, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _pause_demo(environ: dict[str, str]) -> None:
    """Only the campaigns of the scenarios bid, or answers would depend on the hour."""

    async def pause() -> None:
        async with connected(environ["SNAPBID_DATABASE_URL"]) as connection:
            await connection.execute("update campaign set status = 'paused' where id ^@ 'demo-'")

    asyncio.run(pause())


def _await_campaigns(instance: Stack) -> None:
    """Wait until workers have the scenarios' campaigns; SSPs come with the same catalog."""
    probe = {"id": "probe", "test": 1, "imp": [{"id": "1", "banner": {"w": 728, "h": 90}}]}
    request = urllib.request.Request(
        f"{instance.base_url}/api/v1/openrtb2/{SSP}/bid",
        json.dumps(probe).encode(),
        {"Content-Type": "application/json"},
    )
    deadline = time.monotonic() + COUNTED_S
    while True:
        with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=30) as answer:
            if answer.status == 200:
                return
        assert time.monotonic() < deadline, "the campaigns do not bid"
        time.sleep(0.1)


def _report(instance: Stack, environ: dict[str, str], expected: Books) -> Books:
    """The report, once everything is counted or it must have been."""
    asyncio.run(_await_counts(environ["SNAPBID_DATABASE_URL"], expected))
    token = _command(environ, "token", "issue", SSP).strip()
    today = datetime.now(UTC).date()
    query = f"from={today - timedelta(days=1)}&to={today}"
    request = urllib.request.Request(
        f"{instance.base_url}/api/v1/ssp/{SSP}/report?{query}",
        headers={"Authorization": f"Bearer {token}"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        days = json.loads(answer.read(), parse_float=Decimal)["days"]
    bids, wins, imps = (sum(day[name] for day in days) for name in ("bids", "wins", "imps"))
    return Books(bids, wins, imps, sum((Decimal(day["totalCpmUsd"]) for day in days), Decimal(0)))


async def _await_counts(dsn: str, expected: Books) -> None:
    deadline = time.monotonic() + COUNTED_S
    async with connected(dsn) as connection:
        while time.monotonic() < deadline:
            counted = await connection.fetchrow(
                "select (select sum(bids) from bid_daily), (select sum(wins) from bid_daily),"
                " (select sum(imps) from impression_daily)"
            )
            if tuple(counted) == expected[:3]:
                return
            await asyncio.sleep(0.2)


def record(exchange: Exchange) -> int:
    """Write what the exchange has sent us as cases, of one bidder a scenario, in turn."""
    CASES.mkdir(exist_ok=True)
    for path in CASES.glob("*.json"):
        path.unlink()
    for number, scenario in enumerate(scenarios()):
        bidder = scenario.bidders[number % len(scenario.bidders)]
        requests = [request for sender, request in exchange.sent[scenario.name] if sender == bidder]
        lines = ",\n".join(json.dumps(request, ensure_ascii=False) for request in requests)
        text = f'{{"bidder": "{bidder}", "requests": [\n{lines}\n]}}\n'
        (CASES / f"{scenario.name}.json").write_text(text, encoding="utf-8")
    return number + 1
