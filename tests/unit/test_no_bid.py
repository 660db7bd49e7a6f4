"""Why there is no bid, as far as it is told apart live (contract 3, 4)."""

import json
from typing import Any

import pytest
from support.matching_cases import campaign_of
from support.snapshot import RATES, Geo, snapshot_of

from snapbid.bidding._bid_path import NoBid, propose
from snapbid.bidding.reasons import Reason
from snapbid.bidding.request import decode

BANNER: dict[str, Any] = {"banner": {"w": 300, "h": 250}}
NOBODY: dict[str, Any] = {"banner": {"w": 1, "h": 1}}
ROUBLES: dict[str, Any] = {"bidfloor": 1, "bidfloorcur": "RUB"}
MANY: dict[str, Any] = {"qty": {"multiplier": 1001}}
SCREEN: dict[str, Any] = {"dooh": {}}
PRIVATE: dict[str, Any] = {"pmp": {"private_auction": 1, "deals": [{"id": "d"}]}}


@pytest.mark.parametrize(
    ("imps", "more", "reason"),
    [
        ([BANNER], {}, None),
        ([NOBODY, BANNER], {}, None),
        ([NOBODY], {}, Reason.NO_CAMPAIGN),
        ([BANNER], {"cur": ["XXX"]}, Reason.CURRENCY),
        ([BANNER | ROUBLES], {}, Reason.FLOOR_CURRENCY),
        ([BANNER | ROUBLES, NOBODY], {}, Reason.NO_CAMPAIGN),
        ([{}], {}, Reason.NO_MEDIA),
        ([{}, NOBODY], {}, Reason.NO_CAMPAIGN),
        ([BANNER | PRIVATE], {}, Reason.PRIVATE_AUCTION),
        ([{}, BANNER | PRIVATE], {}, Reason.PRIVATE_AUCTION),
        ([BANNER | PRIVATE, NOBODY], {}, Reason.NO_CAMPAIGN),
        ([BANNER], {"id": "x" * 513}, Reason.LONG_ID),
        ([BANNER | MANY], {}, None),
        ([BANNER | MANY], SCREEN, Reason.QUANTITY),
        ([BANNER | MANY, BANNER], SCREEN, None),
        ([BANNER | MANY, NOBODY], SCREEN, Reason.NO_CAMPAIGN),
        ([BANNER | MANY, BANNER | ROUBLES], SCREEN, Reason.QUANTITY),
    ],
)
def test_reasons(imps: list[dict[str, Any]], more: dict[str, Any], reason: Reason | None) -> None:
    snapshot = snapshot_of([campaign_of({})], {"acme": "acme"}, RATES, Geo())
    numbered = [{"id": str(number), **imp} for number, imp in enumerate(imps)]
    request = decode(json.dumps({"id": "a", "imp": numbered, **more}).encode())
    answer = propose(request, "acme", snapshot, 0)
    assert (answer.reason if isinstance(answer, NoBid) else None) == reason
