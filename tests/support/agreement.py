"""Compares the product's decisions with those of `support.oracle`."""

from typing import Any

import msgspec

from snapbid.bidding._bid_path import NoBid
from snapbid.bidding.request import decode
from snapbid.bidding.snapshot import CatalogSnapshot
from snapbid.catalog.payload import decode_payload
from support import oracle
from support.snapshot import decide


def decided(
    world: oracle.World, made: CatalogSnapshot, ssp: str, request: Any
) -> dict[str, oracle.Offer]:
    """The product's answer per impression id, decoded from the request's bytes."""
    now_ms = round(world.now.timestamp() * 1000)
    choices = decide(decode(msgspec.json.encode(request)), ssp, made, now_ms)
    if isinstance(choices, NoBid):
        return {}
    offers = {}
    for choice in choices:
        imp, deal_id = choice.imp, None
        document = decode_payload(made.catalog.index.payload(choice.rank))
        if choice.deal >= 0:
            assert imp.pmp is not None
            assert imp.pmp.deals is not None
            deal_id = str(imp.pmp.deals[choice.deal].id).strip()
        offers[str(imp.id)] = oracle.Offer(
            document.cid,
            document.creatives[choice.creative].crid,
            deal_id,
            made.catalog.index.price(choice.rank),
        )
    return offers


def assert_agrees(
    world: oracle.World, made: CatalogSnapshot, ssp: str, request: Any
) -> dict[str, str]:
    """Compare the answers to a request; the campaigns that answered, by impression."""
    answers = decided(world, made, ssp, request)
    campaigns = campaigns_of(answers)
    assert disagreement(oracle.offers(world, ssp, request, campaigns), answers) is None
    return campaigns


def campaigns_of(answers: dict[str, oracle.Offer]) -> dict[str, str]:
    """The campaign of each answer."""
    return {imp: offer.campaign for imp, offer in answers.items()}


def disagreement(wanted: dict[str, set[oracle.Offer]], answers: dict[str, oracle.Offer]) -> Any:
    """The first impression with a wrong answer, that answer and the right ones; or None."""
    for imp in {**wanted, **answers}:
        acceptable = wanted.get(imp, set())
        if imp in answers if not acceptable else answers.get(imp) not in acceptable:
            return imp, answers.get(imp), acceptable
    return None
