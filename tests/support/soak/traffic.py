"""Everything that partners and operators do, at the same time, and the expected results."""

import asyncio
import contextlib
import json
import random
import time
from collections import Counter
from collections.abc import Coroutine, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import asyncpg

from snapbid.report import tokens
from snapbid.warehouse import campaigns, conversions
from snapbid.warehouse.unavailable import UNAVAILABLE
from support.books import OFFERS, SSPS, Books, Offer, document, trade
from support.lanes import Lane, Reply
from support.partner import Partner
from support.report import report_path
from support.soak.clicks import MARKUP, Clicks
from support.soak.stage import SECRET, Stage
from support.stack import connected

LANES: Final = 8
EVENT_LANES: Final = 3
EVENT_SIZES: Final = (1, 1, 2, 20, 100)
PAUSE_S: Final = 0.01  # of each lane, so that the machine is busy but not overloaded
HANG_S: Final = 60.0  # without an answer
FLOWING: Final = 12  # in a row, each over a new connection: almost surely both workers answer
BACK_S: Final = 60.0
# Campaigns for one size, each a little dearer than the next, which comes when its budget is spent:
# all through a scenario budgets end, and allocators want the same last of them. (CPM, bids)
BUDGETS: Final = {f"soak-budget-{n:02}": (3_000_000 - n * 1000, 6) for n in range(60)}
CAP: Final = 2
USER_AUCTIONS: Final = 15  # so that users reach their caps all through a scenario
PRICES: Final = (1_500_000, 2_750_000)

BUDGETED, CAPPED, PRICED, PAUSED = (336, 280), (120, 600), (468, 60), (250, 250)
WEIGHTS: Final = {BUDGETED: 15, CAPPED: 5}
OFFERED: Final = OFFERS | {
    BUDGETED: Offer(
        "soak-budget-00",
        (BUDGETS["soak-budget-00"][0],),
        fickle=True,
        others=tuple((name, cpm) for name, (cpm, _) in BUDGETS.items())[1:],
    ),
    CAPPED: Offer("soak-cap", (2_000_000,), fickle=True),
    PRICED: Offer("soak-price", PRICES),
    PAUSED: Offer("soak-pause", (4_000_000,), fickle=True),
}


def priced(cpm: int) -> tuple[str, str]:
    creative = {"id": "c", "media": "banner", "w": PRICED[0], "h": PRICED[1], "adm": MARKUP}
    return document("soak-price", PRICED, cpm, creatives=[creative])


class ClickedBooks(Books):
    """Books that collect the click ids of bids."""

    clicks: Clicks

    def _plan(
        self,
        auction: str,
        descriptor: str,
        user: str,
        bids: list[Any],
        multipliers: Mapping[str, Any],
    ) -> None:
        for bid in bids:
            self.clicks.answered(descriptor, bid)
        super()._plan(auction, descriptor, user, bids, multipliers)


CAMPAIGNS: Final = (
    *(
        document(name, BUDGETED, cpm, budget={"total": cpm * bids / 10**9})
        for name, (cpm, bids) in BUDGETS.items()
    ),
    document(
        "soak-cap", CAPPED, 2_000_000, frequency_caps=[{"impressions": CAP, "seconds": 86_400}]
    ),
    priced(PRICES[0]),
    document("soak-pause", PAUSED, 4_000_000),
)


class Traffic:
    """All traffic against a stage, until `finish`; with a pause of each lane between requests."""

    def __init__(
        self, stage: Stage, rng: random.Random, refused_may_count: bool, pause_s: float = PAUSE_S
    ) -> None:
        self._stage = stage
        self._rng = rng
        self._stopping = False
        self._pause_s = pause_s
        self.clicks = Clicks(rng)
        self.books = ClickedBooks(rng, refused_may_count=refused_may_count, offers=OFFERED)
        self.books.clicks = self.clicks
        self.books.user_auctions, self.books.weights = USER_AUCTIONS, WEIGHTS
        self.partner = Partner(
            rng,
            stage.port,
            stage.key,
            lambda _: not self._stopping,
            sizes=EVENT_SIZES,
            pause_s=4 * pause_s,
            click_id=self.clicks.draw,
        )
        self.reports: Counter[int | None] = Counter()
        self.changes: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._has_rotated = False

    async def start(self) -> None:
        works = [self._trade() for _ in range(LANES)]
        works += [self.partner.run(EVENT_LANES), self._read_reports(), self._change_campaigns()]
        self._task = asyncio.gather(*works)

    async def finish(self) -> None:
        """Stop bidding, and fire all remaining notices."""
        self._stopping = True
        await self._task
        await trade(self.books, self._stage.port, auctions=0, lanes=LANES)

    async def _trade(self) -> None:
        lane, own = Lane(self._stage.port), self.books
        while not self._stopping:
            try:
                async with asyncio.timeout(HANG_S):
                    if own.pending and self._rng.random() < 0.7:
                        await own.fire(lane, own.draw())
                    else:
                        await own.bid(lane)
            except TimeoutError:
                self.wrong.append(f"no answer within {HANG_S} s")
                lane.close()
            await asyncio.sleep(self._pause_s)
        lane.close()

    # -- reports -----------------------------------------------------------------------------

    async def _read_reports(self) -> None:
        while not self._stopping:
            reply = await self.report("nova")
            if reply is not None and reply.status == 200:
                counted = totals(json.loads(reply.body))["bids"]
                # Compared with requests: a late bid counts until it is taken back.
                most = sum(n for name, n in self.books.asked.items() if SSPS[name] == "nova")
                if counted > most:
                    self.wrong.append(f"a report of {counted} bids where {most} were asked for")
            await asyncio.sleep(20 * self._pause_s)

    async def report(self, ssp: str) -> Reply | None:
        """Request a report of the last days, with a new token, so that no rate limit applies."""
        today = datetime.now(UTC).date()
        token = tokens.issue(ssp, SECRET, "snapbid")
        target = f"{report_path(ssp)}?from={today - timedelta(days=2)}&to={today}"
        lane = Lane(self._stage.port)
        reply = await lane.get(target, token)
        lane.close()
        self.reports[reply.status if reply else None] += 1
        # If a day ends meanwhile or the clock is set, `to` may be after today.
        if reply is not None and reply.status not in (200, 400, 500):
            self.wrong.append(f"{reply.status} to a report: {reply.body!r}")
        return reply

    # -- campaigns ---------------------------------------------------------------------------

    async def _change_campaigns(self) -> None:
        """Change prices, pause and resume, bypassing the proxies; failures are ignored."""
        while not self._stopping:
            try:
                async with asyncio.timeout(5), connected(self._stage.dsn) as connection:
                    await self._change(connection)
                self.changes["done"] += 1
            except UNAVAILABLE:
                self.changes["failed"] += 1
            await asyncio.sleep(30 * self._pause_s)

    async def _change(self, connection: asyncpg.Connection) -> None:
        if not self._has_rotated:
            self._has_rotated = True  # once, so that each click id stays valid
            async with connection.transaction():
                await conversions.rotate_keys(connection)
        elif self._rng.random() < 0.5:
            await campaigns.replace_many(connection, [priced(self._rng.choice(PRICES))])
        else:
            status: campaigns.Status = self._rng.choice(("active", "paused"))
            await campaigns.set_status(connection, "soak-pause", status)

    # -- recovery ----------------------------------------------------------------------------

    async def flowing(self) -> dict[str, float]:
        """Wait until everything works; gives how long each part was awaited (s), in turn.

        That is readiness, bids and reports of all workers, events, and in the warehouse all that
        had been acknowledged when the wait began. Raises TimeoutError with what does not work.
        """
        acknowledged = of_all(self.books.lower, "bids")
        accepted, events = self.partner.statuses[202], len(self.partner.acknowledged)
        awaited: dict[str, float] = {}
        parts: dict[str, Coroutine[Any, Any, object]] = {
            "bids": self._bids_flow(),
            "reports": self.reported("nova"),
            "events": self._events_flow(accepted),
            "the drain": self._stored("sum(bids) from bid_daily", acknowledged),
            "the drain of events": self._stored("count(*) from events", events),
        }
        try:
            for what, flowing in parts.items():
                began = time.monotonic()
                async with asyncio.timeout(BACK_S):
                    await flowing
                awaited[what] = time.monotonic() - began
        except TimeoutError:
            raise TimeoutError(f"{what}: not within {BACK_S} s") from None
        finally:
            for flowing in parts.values():
                flowing.close()
        return awaited

    async def reported(self, ssp: str) -> Reply:
        """Request a report until there is one."""
        while (reply := await self.report(ssp)) is None or reply.status != 200:
            await asyncio.sleep(self._pause_s)
        return reply

    async def _events_flow(self, accepted: int) -> None:
        while self.partner.statuses[202] == accepted:
            await asyncio.sleep(self._pause_s)

    async def _bids_flow(self) -> None:
        in_a_row = 0
        while in_a_row < FLOWING:
            lane = Lane(self._stage.port)
            ready = await lane.get("/readyz")
            reply = await self.books.bid(lane, wanted=True)
            good = ready is not None and ready.status == 200 and reply is not None
            in_a_row = in_a_row + 1 if good and reply and reply.status == 200 else 0
            lane.close()
            await asyncio.sleep(0 if in_a_row else self._pause_s)

    async def _stored(self, what: str, least: int) -> None:
        """Wait for a count of the warehouse."""
        stored = -1
        while stored < least:
            await asyncio.sleep(5 * self._pause_s)
            with contextlib.suppress(*UNAVAILABLE):
                async with connected(self._stage.dsn) as connection:
                    stored = int(await connection.fetchval(f"select {what}") or 0)


def totals(report: Any) -> Counter[str]:
    """The totals of a report's days."""
    sums: Counter[str] = Counter()
    for day in report["days"]:
        sums.update({name: day[name] for name in ("bids", "wins", "imps")})
    return sums


def of_all(counts: Counter[Any], kind: str) -> int:
    """The sum over all descriptors, campaigns or reasons."""
    return sum(number for key, number in counts.items() if key[0] == kind)


def of_family(counts: Counter[Any], kind: str, canonical: str) -> int:
    """The sum over the descriptors of a canonical id, which all begin with it."""
    return sum(
        number
        for key, number in counts.items()
        if key[0] == kind and str(key[1]).partition("-")[0] == canonical
    )
