"""The auctions that an exchange is given, and what must come of them.

A scenario has a `name`, its impressions (`imp`), members of the request that differ from a plain
one (`request`; null leaves one out), and `bids`: impression -> our campaign that must win it; the
others get no bid. `bidders` names the adapters that can send it, `campaign` one that is only there
for it. What is not built yet says so in `pending`, and must fail.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

FOLDER: Final = Path(__file__).parents[2] / "exchange"
CAMPAIGNS: Final = FOLDER / "campaigns.jsonl"
CASES: Final = FOLDER / "cases"

# Unmodified adapters that send OpenRTB as it is, with a Content-Type, and what their users must
# configure. proxistore sends OpenRTB 2.6, compressed; ezoic the same in plain; adxcg 2.5; loopme
# 2.5, an impression at a time.
BIDDERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "proxistore": {"website": "news", "language": "en"},
    "ezoic": {},
    "adxcg": {"adzoneid": "1"},
    "loopme": {"publisherId": "l-1"},
}

PLAIN: Final[Mapping[str, Any]] = {
    "at": 1,
    "site": {
        "id": "s-1",
        "domain": "news.example",
        "page": "https://news.example/today",
        "publisher": {"id": "pub-1"},
    },
    "device": {
        "ua": "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko)"
        " Chrome/126.0.0.0 Safari/537.36",
        "ip": "192.0.2.1",
        "geo": {"country": "USA"},
        "language": "en",
    },
}


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    imp: list[dict[str, Any]]
    bids: dict[str, str]
    request: dict[str, Any] = {}
    bidders: tuple[str, ...] = tuple(BIDDERS)
    campaign: dict[str, Any] | None = None
    pending: str | None = None

    def auction(self, id: str, bidder: str) -> dict[str, Any]:
        """The auction as a publisher's page or app would ask the exchange for it."""
        plain = merged(PLAIN, self.request)
        asked = {"prebid": {"bidder": {bidder: BIDDERS[bidder]}}}
        options = {"prebid": {"debug": True, "returnallbidstatus": True}}
        imps = [{**imp, "ext": asked} for imp in self.imp]
        return {"id": id, "tmax": 5000, **plain, "imp": imps, "ext": options}


def scenarios() -> list[Scenario]:
    return msgspec.json.decode((FOLDER / "scenarios.json").read_bytes(), type=list[Scenario])


def campaigns() -> list[dict[str, Any]]:
    return [json.loads(line) for line in CAMPAIGNS.read_text().splitlines()]


def merged(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """JSON Merge Patch (RFC 7396)."""
    result = dict(base)
    for name, value in change.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            inner = result.get(name)
            result[name] = merged(inner if isinstance(inner, dict) else {}, value)
        else:
            result[name] = value
    return result
