"""What replacing refused bids may cost: time, and the length of the answer (contract 3)."""

import asyncio
import itertools
import json
from collections.abc import Callable
from math import inf
from typing import Any

import pytest
from support.matching_cases import campaign_of
from support.snapshot import RATES, Geo, snapshot_of

from snapbid.bidding import limits
from snapbid.bidding._bid_path import NoBid, propose
from snapbid.bidding.bounds import REPLACING
from snapbid.bidding.limits import ATTEMPTS, replace_refused
from snapbid.bidding.reasons import Reason
from snapbid.bidding.request import decode
from snapbid.bidding.response import MAX_ANSWER, Bid, response_writer
from snapbid.bidding.snapshot import CatalogSnapshot
from snapbid.ledger.bids.records import BidVerdict

PROCESSOR_S = 1.0


class Ledger:
    """A ledger that refuses the bids of all but the accepted campaigns."""

    def __init__(self, snapshot: CatalogSnapshot, *accepted: str) -> None:
        index = snapshot.catalog.index
        self._numbers = {index.rank(name) for name in accepted}
        self._number_of = {snapshot.template(rank, 0).number: rank for rank in range(len(index))}
        self.asked: list[int] = []

    async def look(self, _auction: bytes, bids: list[Any], *_: object) -> str:
        self.asked.append(len(bids))
        return "".join(self.verdict(number) for _, number, _, _ in bids)

    def verdict(self, number: int) -> str:
        accepted = self._number_of[number] in self._numbers
        return BidVerdict.KEPT if accepted else BidVerdict.OVER_CAP

    def remember(self, auction: bytes, _ssp: int, bids: list[Any], *_: object) -> Any:
        return self.look(auction, bids)

    def when_certain(self, then: Callable[[], object]) -> None:
        then()

    def shard_of(self, _auction: bytes) -> int:
        return 0


def priced(*markups: str) -> CatalogSnapshot:
    """A snapshot with a campaign for each markup, from the dearest down: c0, c1, …"""
    campaigns = [
        campaign_of({"campaign": {"id": f"c{n}", "cpm": 50 - n}, "creative": {"adm": adm}})
        for n, adm in enumerate(markups)
    ]
    return snapshot_of(campaigns, {"acme": "acme"}, RATES, Geo())


def replaced(
    snapshot: CatalogSnapshot,
    ledger: Ledger,
    impressions: int,
    left_s: Callable[[], float] = lambda: inf,
) -> list[Bid] | Reason:
    imps = [{"id": str(n), "banner": {"w": 300, "h": 250}} for n in range(impressions)]
    request = decode(json.dumps({"id": "a", "imp": imps}).encode())
    writer: Any = response_writer("http://b.example")
    proposal = propose(request, "acme", snapshot, 0, inf, PROCESSOR_S)
    assert not isinstance(proposal, NoBid)
    writer.write("a", proposal.bids)
    verdicts = "".join(ledger.verdict(bid.template.number) for bid in proposal.bids)
    return asyncio.run(
        replace_refused(
            writer, ledger, 1, "acme", b"a", proposal, snapshot, verdicts, left_s, False
        )
    )


def cids(bids: list[Bid] | Reason, snapshot: CatalogSnapshot) -> list[str]:
    assert isinstance(bids, list)
    ranks = {snapshot.template(rank, 0).number: rank for rank in range(len(snapshot.catalog.index))}
    index = snapshot.catalog.index
    names = {index.rank(name): name for name in (f"c{n}" for n in range(len(index)))}
    return [str(names[ranks[bid.template.number]]) for bid in bids]


def test_the_attempts_share_one_allowance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once they have used up their share of the request's processor time, none follows."""
    snapshot = priced(*["x"] * (ATTEMPTS + 2))
    last_tried = Ledger(snapshot, f"c{ATTEMPTS - 1}")
    assert cids(replaced(snapshot, last_tried, 2), snapshot) == [f"c{ATTEMPTS - 1}"] * 2
    assert last_tried.asked == [2] * (ATTEMPTS - 1)

    # Each attempt takes 40% of the share.
    clock = itertools.chain.from_iterable(
        (now, now + 0.4 * REPLACING * PROCESSOR_S) for now in itertools.count()
    )
    monkeypatch.setattr(limits, "thread_time", lambda: next(clock))
    slow = Ledger(snapshot, f"c{ATTEMPTS - 1}")
    assert replaced(snapshot, slow, 2) is Reason.LIMITED
    assert slow.asked == [2, 2, 2]


def test_nothing_is_remembered_after_the_last_attempt() -> None:
    """What the ledger was asked is what was offered: no bid that nobody would answer with."""
    snapshot = priced(*["x"] * (ATTEMPTS + 2))
    none = Ledger(snapshot)
    assert replaced(snapshot, none, 2) is Reason.LIMITED
    assert none.asked == [2] * (ATTEMPTS - 1)


def test_replacements_must_fit_in_the_answer() -> None:
    long, short = "x" * 60_000, "x"
    snapshot = priced(short, long)
    kept = replaced(snapshot, Ledger(snapshot, "c1"), 10)
    assert cids(kept, snapshot) == ["c1"] * 4
    assert isinstance(kept, list)
    assert sum(len(bid.template.pieces[2]) for bid in kept) < MAX_ANSWER
    snapshot = priced(long, short)
    assert (
        cids(replaced(snapshot, Ledger(snapshot, "c1"), 10), snapshot) == ["c1"] * 4
    )  # as proposed


def test_refused_bids_free_their_space_in_the_answer() -> None:
    long = "x" * 60_000
    snapshot = priced(long, long)
    assert cids(replaced(snapshot, Ledger(snapshot, "c1"), 10), snapshot) == ["c1"] * 4


@pytest.mark.parametrize(("more", "fit"), [(0, 4), (1, 3)])
def test_replacements_may_fill_the_answer_exactly(more: int, fit: int) -> None:
    snapshot = priced("x", "x")
    plain = replaced(snapshot, Ledger(snapshot, "c1"), 4)
    assert isinstance(plain, list)
    rest = MAX_ANSWER // 4 - response_writer("http://b.example").length("a", plain[0])
    snapshot = priced("x", "x" * (1 + rest + more))
    assert cids(replaced(snapshot, Ledger(snapshot, "c1"), 4), snapshot) == ["c1"] * fit


def test_a_single_bid_may_be_replaced_by_a_longer_one() -> None:
    snapshot = priced("x", '"' * 60_000)
    assert cids(replaced(snapshot, Ledger(snapshot, "c1"), 1), snapshot) == ["c1"]
