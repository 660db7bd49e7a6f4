"""The single steps of a bid, with 10,000 campaigns unless the name says otherwise."""

import json
from typing import Any

import pytest

from bench.micro.conftest import REQUESTS, Each, snapshot_of
from bench.snapshot import NOW_MS, SSP, answer
from snapbid.bidding._bid_path import NoBid, search
from snapbid.bidding.request import BidRequest, decode
from snapbid.bidding.response import Bid, response_writer
from snapbid.bidding.snapshot import CatalogSnapshot

CANONICAL = "acme"


def test_reference_json(each: Each, bids: list[bytes]) -> None:
    """The standard library's decoder, to gauge the machine: its changes are the machine's."""
    each(json.loads, bids)


def test_decode(each: Each, bids: list[bytes]) -> None:
    each(decode, bids)


def test_decode_today(each: Each, today: list[bytes]) -> None:
    each(decode, today)


@pytest.mark.parametrize("campaigns", [1_000, 10_000, 100_000])
def test_match(each: Each, campaigns: int, bids: list[bytes]) -> None:
    _match(each, snapshot_of(campaigns), bids)


@pytest.mark.parametrize("campaigns", [1_000, 10_000, 100_000])
def test_match_no_bid(each: Each, campaigns: int, no_bids: list[bytes]) -> None:
    _match(each, snapshot_of(campaigns), no_bids)


def _match(each: Each, snapshot: CatalogSnapshot, bodies: list[bytes]) -> None:
    """Measure a match, from the decoded request to the best campaign for its impression."""
    index, lookups = snapshot.catalog.index, snapshot.lookups

    def match(request: Any, imp: Any) -> Any:
        query = index.query(lookups, request, SSP, CANONICAL, NOW_MS)
        query.impression(imp)
        return query.next()

    requests = [decode(body) for body in bodies]
    each(match, [(request, imp) for request in requests for imp in request.imp or ()])


def test_encode(each: Each, ten_thousand: CatalogSnapshot, bids: list[bytes]) -> None:
    writer = response_writer("http://127.0.0.1:8000")
    made = [_bids(decode(body), ten_thousand) for body in bids]
    each(writer.write, made)


def _bids(request: BidRequest, snapshot: CatalogSnapshot) -> tuple[str, list[Bid]]:
    decision = search(request, SSP, snapshot, NOW_MS)
    assert not isinstance(decision, NoBid)
    return str(request.id), [
        Bid(str(choice.imp.id), snapshot.template(choice.rank, choice.creative), None)
        for choice in decision.choices
    ]


@pytest.mark.parametrize("campaigns", [1_000, 10_000, 100_000])
def test_answer_bid(each: Each, campaigns: int, bids: list[bytes]) -> None:
    _answer(each, snapshot_of(campaigns), bids)


def test_answer_no_bid(each: Each, ten_thousand: CatalogSnapshot, no_bids: list[bytes]) -> None:
    _answer(each, ten_thousand, no_bids)


def test_answer_bid_today(each: Each, ten_thousand: CatalogSnapshot, today: list[bytes]) -> None:
    _answer(each, ten_thousand, today)


def _answer(each: Each, snapshot: CatalogSnapshot, bodies: list[bytes]) -> None:
    writer = response_writer("http://127.0.0.1:8000")
    each(answer, [(writer, body, snapshot) for body in bodies])


def test_requests_differ(bids: list[bytes]) -> None:
    assert len(set(bids)) == REQUESTS
