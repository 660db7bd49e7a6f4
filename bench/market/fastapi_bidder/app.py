"""The application: the bid endpoint and the win notice."""

import os
import re
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated
from urllib.parse import quote

import asyncpg
from fastapi import FastAPI, HTTPException, Query, Request, Response
from pydantic import ValidationError
from redis.asyncio import Redis

from bench.market.fastapi_bidder.decide import Choice, Decider
from bench.market.fastapi_bidder.index import Index
from bench.market.fastapi_bidder.ledger import Ledger
from bench.market.fastapi_bidder.models import Bid, BidRequest, BidResponse, SeatBid
from snapbid.campaigns.document import decode, parse
from snapbid.reference import agents, rates
from snapbid.reference.geo import GeoDatabase

MTYPE = {"banner": 1, "video": 2, "audio": 3, "native": 4}
MACRO = re.compile(r"\{\{(auction_id|imp_id|campaign_id|creative_id|cachebuster)\}\}")
PIXEL = bytes.fromhex(
    "47494638396101000100800000ffffff00000021f90401000000002c00000000010001000002024401003b"
)
NO_STORE = {"cache-control": "no-store"}

NoticeId = Annotated[str, Query(min_length=1, max_length=512)]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    connection = await asyncpg.connect(os.environ["SNAPBID_DATABASE_URL"])
    documents = await connection.fetch("select document::text from campaign")
    registry = dict(await connection.fetch("select descriptor, canonical from ssp"))
    await connection.close()
    agents.load()
    index = Index(parse(decode(row[0])) for row in documents)
    geo = GeoDatabase()
    async with Redis.from_url(os.environ["SNAPBID_REDIS_URL"]) as redis:
        app.state.registry = registry
        app.state.decider = Decider(index, registry, rates.load(), geo)
        app.state.ledger = Ledger(redis)
        app.state.base_url = f"http://127.0.0.1:{os.environ['SNAPBID_PORT']}"
        yield
    geo.close()


app = FastAPI(lifespan=lifespan, openapi_url=None)


@app.post("/api/v1/openrtb2/{ssp}/bid")
async def bid(ssp: str, request: Request) -> Response:
    state = request.app.state
    if ssp not in state.registry:
        raise HTTPException(404, "unknown_ssp")
    try:  # from the bytes: a body parameter would be parsed into Python objects first
        asked = BidRequest.model_validate_json(await request.body())
    except ValidationError as error:
        raise HTTPException(400, error.errors(include_url=False, include_input=False)) from None
    choices = state.decider.decide(asked, ssp, time.time_ns() // 1_000_000)
    if not choices:
        return Response(status_code=204)
    response = answer(asked.id, choices, state.base_url)
    if asked.test != 1:
        await state.ledger.remember(asked.id, ssp, choices)
    return Response(response.model_dump_json(exclude_none=True), media_type="application/json")


@app.get("/rtb/win")
async def win(request: Request, id: NoticeId, impId: NoticeId) -> Response:
    await request.app.state.ledger.win(id, impId)
    return Response(PIXEL, media_type="image/gif", headers=NO_STORE)


@app.get("/readyz")
async def readyz() -> dict[str, str]:
    return {"status": "ready"}


def answer(auction: str, choices: Sequence[Choice], base_url: str) -> BidResponse:
    own = secrets.token_hex(8)
    seats: dict[str | None, list[Bid]] = {}
    for number, choice in enumerate(choices):
        seats.setdefault(choice.campaign.seat, []).append(
            write(choice, auction, f"{own}-{number}", base_url)
        )
    made = [SeatBid.model_construct(bid=bids, seat=seat) for seat, bids in seats.items()]
    return BidResponse.model_construct(id=auction, seatbid=made, bidid=own, cur="USD")


def write(choice: Choice, auction: str, bid_id: str, base_url: str) -> Bid:
    imp, campaign, creative, deal = choice
    query = f"id={quote(auction, safe='')}&impId={quote(imp.id, safe='')}"
    values = {
        "auction_id": quote(auction, safe=""),
        "imp_id": quote(imp.id, safe=""),
        "campaign_id": quote(campaign.id, safe=""),
        "creative_id": quote(creative.id, safe=""),
        "cachebuster": bid_id,
    }
    return Bid.model_construct(
        id=bid_id,
        impid=imp.id,
        price=campaign.cpm_micros / 1_000_000,
        adm=MACRO.sub(lambda found: values[found[1]], creative.adm),
        adomain=[campaign.advertiser],
        cid=campaign.id,
        crid=creative.id,
        cat=list(campaign.categories) or None,
        cattax=1 if campaign.categories else None,
        attr=list(creative.attributes) or None,
        w=creative.w,
        h=creative.h,
        iurl=creative.iurl,
        mtype=MTYPE[creative.media],
        apis=list(creative.apis) or None,
        language=creative.language,
        dur=creative.duration,
        protocol=creative.protocols[0] if len(creative.protocols) == 1 else None,
        dealid=deal,
        nurl=f"{base_url}/rtb/win?{query}",
        burl=f"{base_url}/rtb/bill?{query}",
        lurl=f"{base_url}/rtb/loss?{query}&nbr=${{AUCTION_LOSS}}",
    )
