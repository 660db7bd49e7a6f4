"""Clicks of a soak: the ids in the bids that were answered, and for what events must have counted.

The order in which the warehouse has stored the events decides (`support.oracle_clicks`).
"""

import json
import random
import re
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from typing import Any, Final

from support import sending
from support.oracle_clicks import Happened, Issued, Sum, attribute

MARKUP: Final = "<a href='https://shop.example/?click={{click_id}}'>go</a>"
FORGED: Final = "xy" * 30
_CLICK: Final = re.compile(r"click=([A-Za-z0-9_-]{60})")
_TIME: Final = slice(13, 17)  # of a click id's bytes
_SIGNS: Final = {"deposit": 1, "withdraw": -1}
_EVENTS: Final = """
select product, event, round(extract(epoch from occurred_at) * 1000)::bigint as occurred,
    round(extract(epoch from received_at) * 1000)::bigint as received,
    client_user_id, anonymous_id, click_id, enrichment::text as enrichment, flags
from events order by arrival
"""
_SUMS: Final = """
select day, campaign, creative, descriptor, event, conversions, value_micros, first_deposits
from conversion_daily
"""


class Clicks:
    """Collects click ids from bids, and draws those of events."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._issued: dict[str, Issued] = {}
        self.conversions = 0  # as last compared

    def answered(self, descriptor: str, bid: Mapping[str, Any]) -> None:
        """A bid of this SSP was answered."""
        for text in _CLICK.findall(bid["adm"]):
            clicked_s = int.from_bytes(urlsafe_b64decode(text)[_TIME], "big")
            self._issued[text] = Issued(bid["cid"], "c", descriptor, clicked_s * 1000)

    def draw(self) -> str | None:
        """Return the click id of an event, which few have."""
        drawn = self._rng.random()
        if drawn < 0.8 or not self._issued:
            return None
        return FORGED if drawn < 0.85 else self._rng.choice(list(self._issued))

    def differences(self, dsn: str) -> list[str]:
        """Return what differs once all events are stored."""
        rows = sending.rows(dsn, _EVENTS)
        expected = attribute(map(_happened, rows), self._issued)
        wrong = [
            f"an event has the flags {row['flags']}, not {flag!r}"
            for row, flag in zip(rows, expected.flags, strict=True)
            if [each for each in row["flags"] if each.startswith("click")] != [flag] * bool(flag)
        ]
        counted = (list(row.values()) for row in sending.rows(dsn, _SUMS))
        found = {Sum(*row[:5]): tuple(row[5:]) for row in counted}
        sums = expected.sums
        self.conversions = sum(number for number, *_ in sums.values())
        wrong += [
            f"conversions of {key}: {found.get(key)}, not {sums.get(key)}"
            for key in found | sums
            if found.get(key) != sums.get(key)
        ]
        return wrong


def _happened(row: Mapping[str, Any]) -> Happened:
    amounts = json.loads(row["enrichment"])["amounts"] or {}
    sign = _SIGNS.get(row["event"], 0)
    usd = sign * amounts["amount"]["usd"] if sign else 0
    ids = row["client_user_id"], row["anonymous_id"], row["click_id"]
    times = row["occurred"], row["received"]
    return Happened(row["product"], row["event"], *times, *ids, round(usd * 1_000_000))
