"""Explains the answer to a request: which campaign wins each impression, and why others do not.

The request is decoded and matched as for a bid, and the ledger checks the budgets and caps of the
eligible campaigns. For every other campaign the matcher's own `Query.explain` names the first rule
that refuses it.
"""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from heapq import merge
from typing import Final, Literal, NamedTuple

import msgspec

from snapbid.base.errors import BadRequest
from snapbid.base.redis_keys import shard_of
from snapbid.bidding._bid_path import can_be_notified
from snapbid.bidding.bounds import MAX_IMPRESSIONS
from snapbid.bidding.cost import MAX_COST, cost_of, quantity_of
from snapbid.bidding.lookups import USD
from snapbid.bidding.pods import pods_of
from snapbid.bidding.reasons import Reason, unanswered
from snapbid.bidding.refusals import with_open_deals
from snapbid.bidding.request import BidRequest, Imp, decode
from snapbid.bidding.snapshot import CatalogSnapshot, limits_of
from snapbid.campaigns.campaign import Campaign
from snapbid.campaigns.suspensions import CreativeSuspension
from snapbid.catalog.payload import CampaignPayload, decode_payload
from snapbid.catalog.single import Refusal
from snapbid.ledger.admin.parts import name
from snapbid.ledger.bids.records import BidVerdict, LedgerBid
from snapbid.operations.explain import words
from snapbid.operations.explain.carried import Carried, asked, known_by, unrecognised, withheld
from snapbid.operations.explain.codes import DEAL_BID, HIGHER_BID, INVALID_REQUEST, Code
from snapbid.operations.explain.groups import Group, Groups
from snapbid.operations.explain.search import (
    NO_RATE,
    Search,
    Situation,
    deals_of,
    floor_of,
    undecided,
)

Look = Callable[[bytes, list[LedgerBid], str | None], Awaitable[str]]
CPU_MS: Final = 10
Documents = Callable[[Sequence[str]], Awaitable[Mapping[str, Campaign]]]


class Offer(msgspec.Struct, frozen=True):
    """A bid that would be made; `price` is a CPM in USD."""

    campaign: str
    creative: str
    deal: str | None
    price: float
    code: Code | None = None  # the runner-up's loss reason


class Impression(msgspec.Struct, frozen=True):
    """An impression, its winner, and groups of campaigns refused by the same rule."""

    id: str
    asks: str
    floor: str
    floor_usd: float | None  # None: no exchange rate
    campaigns: int  # that were considered
    eligible: int  # campaigns that could bid
    winner: Offer | None
    runner_up: Offer | None
    summary: str
    refused: list[Group]
    quantity: float = 1  # impressions that this one stands for, which multiply the cost of a win


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a request and the reasons for it. Prices are in USD."""

    ssp: str
    status: int
    reason: str
    code: Code | None = None
    id: str | None = None
    canonical: str | None = None
    at: str | None = None
    withheld: list[str] = []  # why user data was not used
    user: str | None = None
    persons: list[str] = []  # in audiences, by the hashes of their ids
    carries: Carried = {}
    currency: str = USD  # of the bids
    impressions: list[Impression] = []
    campaigns_from: Literal["warehouse", "catalog"] = "warehouse"
    unread: list[str] = []  # campaigns that cannot bid: their documents are invalid
    unavailable: list[int] = []  # shards of the ledger, whose auctions get no bid
    left_out: int = 0  # impressions beyond the first 100, which are ignored


class MatchableRequest(NamedTuple):
    """A valid request, ready to be matched."""

    request: BidRequest
    situation: Situation
    left_out: int = 0  # impressions


def read(
    body: bytes, ssp: str, snapshot: CatalogSnapshot | None, now_ms: int, max_bytes: int
) -> MatchableRequest | Explanation:
    """Decode and check a request as the endpoint does, in the same order.

    Returns an Explanation if the request is refused. `snapshot` is None if the SSP is not
    registered.
    """
    if snapshot is None:
        return Explanation(
            ssp=ssp, status=404, reason=f"unknown_ssp: {ssp[:60]!a} is not registered"
        )
    if len(body) > max_bytes:
        reason = f"too_large: the body has {len(body)} bytes, over {max_bytes}"
        return Explanation(ssp=ssp, status=413, reason=reason)
    try:
        request = decode(body)
    except BadRequest as error:
        reason = f"{error.code}: {error.detail}"
        return Explanation(ssp=ssp, status=400, reason=reason, code=INVALID_REQUEST)
    canonical = snapshot.catalog.ssps[ssp]
    why = withheld(request, snapshot.lookups)
    lookups = snapshot.lookups.bidding_in(request.cur) or snapshot.lookups
    suspensions: dict[str, dict[str, CreativeSuspension]] = {}
    for each in snapshot.catalog.suspensions:
        if each.ssp == canonical:
            suspensions.setdefault(each.campaign, {})[each.creative] = each
    situation = Situation(ssp, canonical, now_ms, lookups, why, snapshot.shards, {}, suspensions)
    return MatchableRequest(request, situation, _left_out(request, body))


def _left_out(request: BidRequest, body: bytes) -> int:
    """Count the body's impressions beyond the first MAX_IMPRESSIONS, which were not decoded."""
    if len(request.imp or ()) < MAX_IMPRESSIONS:
        return 0
    sent = [imp for imp in json.loads(body)["imp"] if imp not in (None, "", [])]
    return len(sent) - MAX_IMPRESSIONS


async def explain(
    of: MatchableRequest,
    snapshot: CatalogSnapshot,
    look: Look,
    documents: Documents,
    cpu_ms: int = CPU_MS,
) -> Explanation:
    """Explain every impression: its winner, and the refused campaigns by rule.

    `cpu_ms`: the processor time that a live request may use. As a side effect, fills in `rivals` of
    the request's `Situation`.
    """
    request, situation, left_out = of
    ssp, canonical, now_ms, lookups, why, *_ = situation
    search = Search(snapshot.catalog.index, request, situation)
    base = Explanation(
        ssp=ssp,
        status=204,
        reason="",
        id=str(request.id),
        canonical=canonical,
        at=words.time(now_ms),
        withheld=why,
        user=known_by(search.user) or f"not recognised: {unrecognised(request, why)}",
        carries=search.carried(),
        left_out=left_out,
        currency=lookups.currency,
    )
    if lookups.bidding_in(request.cur) is None:
        names = words.some(request.cur or ())
        reason = f"{Reason.CURRENCY.value}: no exchange rate for any currency of cur ({names})"
        return msgspec.structs.replace(base, reason=reason)
    if not can_be_notified(str(request.id)):
        reason = f"{Reason.LONG_ID.value}: id is over 512 bytes, too long for notices"
        return msgspec.structs.replace(base, reason=reason)
    explainer = _ImpressionExplainer(snapshot, request, situation, search, look, documents)
    in_turn = explainer.in_turn()
    explained = [await explainer.explain(imp) for imp in in_turn]
    cut_short = _cut_short(request, situation, snapshot, cpu_ms)
    if cut_short:
        whole, cut = explained[:-cut_short], explained[-cut_short:]
        explained = [*whole, *(_undecided(impression, cpu_ms) for impression in cut)]
    of_imps = {id(imp): impression for imp, impression in zip(in_turn, explained, strict=True)}
    impressions = [of_imps[id(imp)] for imp in request.imp or ()]
    if any(impression.winner for impression in impressions):
        base = msgspec.structs.replace(base, status=200, reason="a bid")
    else:
        limited = any(group.limited for impression in impressions for group in impression.refused)
        searched = [each for each in impressions if each.quantity <= lookups.max_quantity]
        rated = any(impression.floor_usd is not None for impression in searched)
        outcome = Reason.LIMITED if limited else unanswered(request, has_floor=rated)
        if len(searched) < len(impressions) and not rated:
            outcome = Reason.QUANTITY
        if cut_short:
            outcome = Reason.CUT_SHORT
        base = msgspec.structs.replace(base, reason=f"no bid ({outcome.value})")
    return msgspec.structs.replace(base, impressions=impressions)


def without(of: MatchableRequest, unavailable: list[int]) -> Explanation | None:
    """Return an Explanation if the auction's shard is unavailable, otherwise None."""
    request, situation, _ = of
    shard = shard_of(str(request.id).encode(), situation.shards)
    if shard not in unavailable:
        return None
    reason = f"{Reason.STORE_DOWN.value}: the auction's shard of the ledger, {name(shard)}, is down"
    return Explanation(
        ssp=situation.ssp,
        status=204,
        reason=f"no bid ({reason})",
        id=str(request.id),
        canonical=situation.canonical,
        at=words.time(situation.now_ms),
        unavailable=unavailable,
    )


def _cut_short(
    request: BidRequest, situation: Situation, snapshot: CatalogSnapshot, cpu_ms: int
) -> int:
    if request.tmax is not None and request.tmax > 0:
        cpu_ms = min(cpu_ms, request.tmax)
    return undecided(request, situation, snapshot, cpu_ms / 1000)


def _undecided(impression: Impression, cpu_ms: int) -> Impression:
    why = (
        f"{Reason.CUT_SHORT.value}: the request's time (tmax, or {cpu_ms} ms of processor time)"
        " ends before this impression is decided"
    )
    summary = f"{why}; {impression.summary}" if impression.summary else why
    return msgspec.structs.replace(impression, winner=None, runner_up=None, summary=summary)


class _ImpressionExplainer:
    """Explains the impressions of a request one by one; `in_turn` gives their order."""

    def __init__(
        self,
        snapshot: CatalogSnapshot,
        request: BidRequest,
        situation: Situation,
        search: Search,
        look: Look,
        documents: Documents,
    ) -> None:
        self._snapshot = snapshot
        self._index = snapshot.catalog.index
        self._request = request
        self._search = search
        self._opened = Search(self._index, request, situation)  # for impressions with open deals
        self._lookups = situation.lookups
        self._pods = pods_of(request.imp or ())
        self._rivals = situation.rivals
        self._look = look
        self._documents = documents

    def in_turn(self) -> Sequence[Imp]:
        """Return the impressions in the order in which they are decided."""
        return (self._request.imp or ()) if self._pods is None else self._pods.in_turn()

    async def explain(self, imp: Imp) -> Impression:
        lookups = self._lookups
        floor = floor_of(imp, lookups)
        terms = words.floor(floor, imp.bidfloor, imp.bidfloorcur)
        usd = None if floor == NO_RATE else floor / 1_000_000
        total, quantity = len(self._index), quantity_of(self._request, imp)
        base = Impression(
            str(imp.id), asked(imp), terms, usd, total, 0, None, None, "", [], quantity
        )
        if quantity > lookups.max_quantity:
            why = f"imp.qty.multiplier is over the limit of {lookups.max_quantity}"
            return msgspec.structs.replace(base, summary=f"every campaign: {why}")
        rivals = [] if self._pods is None else self._pods.rivals(imp) or []
        if rivals:
            self._rivals[imp.id] = rivals
        if not self._search.impression(imp):
            return msgspec.structs.replace(base, summary=f"every campaign: {terms}")
        if not can_be_notified(str(imp.id)):
            why = "imp.id is over 512 bytes, too long for notices"
            return msgspec.structs.replace(base, summary=why)
        self._opened.impression(with_open_deals(imp))
        groups = Groups(self._index, imp, floor, deals_of(imp, lookups), self._opened, rivals)
        for rank in self._ranks():
            refusal, dimension = self._search.explain(rank)
            if refusal == Refusal.REFUSED_INACTIVE and self._is_hidden(rank):
                total -= 1
            else:
                groups.refuse(rank, refusal, dimension)
        best, eligible = await self._eligible(imp, quantity, groups)
        names = groups.samples()
        campaigns = await self._documents(names) if names else {}
        refused = groups.described(self._request, self._search.carried(), campaigns)
        runner_up = best[1] if len(best) > 1 else None
        if runner_up is not None:
            code = HIGHER_BID if runner_up.price <= best[0].price else DEAL_BID
            runner_up = msgspec.structs.replace(runner_up, code=code)
        return msgspec.structs.replace(
            base,
            campaigns=total,
            eligible=eligible,
            winner=best[0] if best else None,
            runner_up=runner_up,
            summary=_summary(refused, total),
            refused=refused,
        )

    def _ranks(self) -> Iterable[int]:
        """Return the ranks of all campaigns, in base and overlay, highest price first."""
        base = self._snapshot.catalog.base
        if base is None:
            return range(len(self._index))
        parts = (range(base.campaigns), range(base.campaigns, len(self._index)))
        return merge(*parts, key=lambda rank: -self._index.price(rank))

    def _is_hidden(self, rank: int) -> bool:
        """Return whether the overlay replaces or removes the campaign."""
        return self._index.rank(self._document(rank).cid) != rank

    async def _eligible(self, imp: Imp, quantity: float, groups: Groups) -> tuple[list[Offer], int]:
        """Return the best two bids, in search order, and the total number of bids."""
        choices = []
        while (choice := self._search.query.next()) is not None:
            choices.append(choice)
        refused = await self._refused(imp, quantity, [rank for rank, _, _ in choices])
        for rank, verdict in refused.items():
            groups.limit(rank, verdict, self._document(rank))
        kept = [choice for choice in choices if choice[0] not in refused]
        if kept and self._pods is not None:
            self._pods.take(imp, self._index.advertiser(kept[0][0]))
        return [self._offer(imp, *choice) for choice in kept[:2]], len(kept)

    async def _refused(self, imp: Imp, quantity: float, ranks: Sequence[int]) -> dict[int, str]:
        """Return, by rank, the verdict on each campaign refused for its budget, caps or cost."""
        limited: dict[int, LedgerBid] = {}
        refused: dict[int, str] = {}
        for rank in ranks:
            document = self._document(rank)
            limits = limits_of(document, self._snapshot.shards)
            cost = cost_of(self._index.price(rank), quantity)
            if cost > MAX_COST:
                refused[rank] = BidVerdict.OVER_SUM
            elif limits is not None:
                limited[rank] = (str(imp.id).encode(), document.number, cost, limits)
        auction, bids = str(self._request.id).encode(), list(limited.values())
        verdicts = await self._look(auction, bids, self._search.user) if bids else ""
        verdict_of = zip(limited, verdicts, strict=True)
        refused |= {rank: verdict for rank, verdict in verdict_of if verdict != BidVerdict.KEPT}
        return refused

    def _offer(self, imp: Imp, rank: int, creative: int, deal: int) -> Offer:
        document = self._document(rank)
        deals = (imp.pmp.deals if imp.pmp else None) or ()
        return Offer(
            document.cid,
            document.creatives[creative].crid,
            str(deals[deal].id) if deal >= 0 else None,
            self._index.price(rank) / 1_000_000,
        )

    def _document(self, rank: int) -> CampaignPayload:
        return decode_payload(self._index.payload(rank))


def _summary(refused: list[Group], total: int) -> str:
    """Summarise refusals: `31 of 40: country; 6: size; 2: floor 1.20 > 0.90; 1: budget spent`."""
    parts = [f"{group.count}: {group.rule}" for group in refused]
    if parts:
        parts[0] = f"{refused[0].count} of {total}: {refused[0].rule}"
    return "; ".join(parts)
