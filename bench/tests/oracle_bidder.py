"""A bidder that keeps the benchmark's contract or, with `--greedy`, bids on everything.

python -m bench.tests.oracle_bidder PORT CAMPAIGNS.json [--greedy]
"""

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from bench.market.contract import Impression, auctions
from bench.market.corpus import Campaign


class OracleBidder:
    """Bids as the oracle does; counts each bid as a paid impression, and wins by id."""

    def __init__(self, campaigns: list[Campaign], port: int, *, greedy: bool) -> None:
        self._campaigns = campaigns
        self._port = port
        self._greedy = greedy
        self._spent: Counter[int] = Counter()
        self._seen: Counter[tuple[int, str]] = Counter()
        self._wins: Counter[str] = Counter()

    def answer(self, target: str, body: bytes) -> tuple[int, bytes]:
        url = urlsplit(target)
        if url.path == "/win":
            self._wins[parse_qs(url.query)["id"][0]] += 1
        elif url.path == "/wins":
            count = self._wins.total() if self._greedy else len(self._wins)
            return 200, str(count).encode()
        elif url.path == "/bid":
            return self._bid(json.loads(body))
        return 200, b""

    def _bid(self, request: dict[str, Any]) -> tuple[int, bytes]:
        user = request["user"]["id"]
        open_ones = [each for each in self._campaigns if self._greedy or self._may(each, user)]
        (asked,) = auctions([request], open_ones)
        bids = []
        for imp, own in asked.impressions.items():
            campaign = (
                self._campaigns[0] if self._greedy else self._best(request, imp, own, open_ones)
            )
            if campaign is not None:
                self._spent[campaign.id] += campaign.cpm_cents * 10
                self._seen[campaign.id, user] += 1
                bids.append(self._written(request["id"], imp, campaign))
        answer = {"id": request["id"], "seatbid": [{"bid": bids}]}
        return (200, json.dumps(answer).encode()) if bids else (204, b"")

    def _best(
        self, request: dict[str, Any], imp: str, asked: Impression, campaigns: list[Campaign]
    ) -> Campaign | None:
        for each in campaigns:
            if each.cpm_cents == asked.best_cents:
                (alone,) = auctions([request], [each])
                if alone.impressions[imp].best_cents:
                    return each
        return None

    def _may(self, campaign: Campaign, user: str) -> bool:
        """Return whether a campaign's budget and cap allow another impression for this user."""
        left = (campaign.budget_micros or 10**12) - self._spent[campaign.id]
        return left >= campaign.cpm_cents * 10 and (
            self._seen[campaign.id, user] < (campaign.cap or 10**6)
        )

    def _written(self, id: str, imp: str, campaign: Campaign) -> dict[str, Any]:
        notice = f"http://127.0.0.1:{self._port}/win?id={id}-{imp}"
        price = campaign.cpm_cents / 100
        return {"impid": imp, "price": price, "cid": f"{campaign.id}", "adm": "x", "nurl": notice}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                _, _, rest = head.lower().partition("content-length: ")
                body = await reader.readexactly(int(rest.split("\r\n")[0]) if rest else 0)
                status, answer = self.answer(head.split(" ")[1], body)
                length = f"HTTP/1.1 {status} x\r\ncontent-length: {len(answer)}\r\n\r\n"
                writer.write(length.encode() + answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


async def main(port: str, file: str, *options: str) -> None:
    campaigns = msgspec.json.decode(Path(file).read_bytes(), type=list[Campaign])
    bidder = OracleBidder(campaigns, int(port), greedy="--greedy" in options)
    async with await asyncio.start_server(bidder.serve, "127.0.0.1", int(port)) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
