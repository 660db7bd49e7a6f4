"""Clicks of a run: click ids that partners send with events, and for what these must count.

The order in which the warehouse has stored the events decides (`support.oracle_clicks`). Nobody
knows at which moment of a round a key was retired, or lost with a newer warehouse: of an event that
was under way then, its own flag decides.
"""

import json
import random
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple

from snapbid.campaigns.click_id import Click, ClickKey, creative_digest
from snapbid.warehouse import conversions
from support.oracle_clicks import EXPIRED, INVALID, LATER, NOBODYS, Happened, Issued, Sum, attribute
from support.simulator.servers import PostgresServer
from support.simulator.snapshot import CPMS, SSPS

LIKELY: Final = 0.7  # that a run with events has clicks
FORGED: Final = "EQAAAAdhYmNkAAAACWVT8QBhdWN0aW9uLsMAAAAAAAAAAAAAAAAAAAAAAAAA"
AGES_S: Final = (0, 5, 3600, 28 * 86_400, 40 * 86_400)  # of clicks: the last counts no more
BACKFILLED_MS: Final = 2 * 86_400_000
CREATIVE: Final = "k"
_KINDS: Final = (
    "register",
    "login",
    "app_open",
    "app_open",
    "deposit",
    "deposit",
    "withdraw",
    "bet",
)
_SHOWN: Final = 3

Key = tuple[int, bytes]


def draw(seed: str, seconds: float, workers: list[str]) -> list[tuple[float, str, str]]:
    """Requests with events of clicks: when, to which worker, and which (see `event_of`)."""
    rng = random.Random(f"{seed} clicks")
    if rng.random() >= LIKELY:
        return []
    return draw_requests(rng, "k", (10, 40, 80), (1, 1, 2, 5), seconds, workers)


def draw_requests(
    rng: random.Random,
    letter: str,
    counts: Sequence[int],
    sizes: Sequence[int],
    seconds: float,
    workers: list[str],
) -> list[tuple[float, str, str]]:
    """One of `counts` requests, each of one of `sizes` new events, by numbers after a letter."""
    requests: list[tuple[float, str, str]] = []
    number = 0
    for _ in range(rng.choice(counts)):
        size = rng.choice(sizes)
        names = [str(number + place) for place in range(size)]
        number += size
        at = 0.3 + rng.random() * seconds
        for _ in range(rng.choice((1, 1, 2, 3))):  # sent again, whatever was answered
            text = ",".join(f"{letter}{name}.{rng.choice((0,) * 8 + (1,))}" for name in names)
            requests.append((at, rng.choice(workers), text))
            at += rng.choice((0.002, 0.3, 3.0)) * rng.random()
    return requests


def draw_rotations(seed: str, seconds: float) -> list[float]:
    """When the keys of click ids are rotated."""
    rng = random.Random(f"{seed} rotations")
    return [0.3 + rng.random() * seconds for _ in range(rng.choice((0, 0, 1, 2, 4)))]


class Sent(NamedTuple):
    """A server event; `click` is the number of its click, -1 for a forged one, None without.

    `age_ms`: how long before the run it happened.
    """

    event: str
    identity: dict[str, str]
    click: int | None
    context: dict[str, Any]
    age_ms: int = 0


def event_of(number: int, variant: int) -> Sent:
    """The event of a number. Variants differ in their context alone."""
    rng = random.Random(number)
    kind = rng.choice(_KINDS)
    user, device = rng.choice(("p0", "p1", "p2")), rng.choice(("x0", "x1", None))
    identity = {"client_user_id": user}
    if device is not None:
        identity["anonymous_id"] = device
    if kind == "app_open" and device is not None and rng.random() < 0.7:
        del identity["client_user_id"]
    if number % 13 == 0:
        identity = dict.fromkeys(identity, NOBODYS[0])
    context: dict[str, Any] = {"ip_address": "192.0.2.1", "mark": variant}
    if kind == "app_open":
        context["platform"] = "ios"
    if kind in ("deposit", "withdraw", "bet"):
        context |= {"transaction_id": f"k{number}", "amount": number % 7 + 0.25, "currency": "USD"}
    if kind == "bet":
        context |= {"game_type": "slot", "game_provider": "p", "bet_result": "win",
                    "bet_result_amount": number % 5 - 2.5, "is_free": number % 4 == 0}  # fmt: skip
    click = rng.choice((None, None, None, -1, *(rng.randrange(12) for _ in range(3))))
    return Sent(kind, identity, click, context, BACKFILLED_MS if number % 11 == 3 else 0)


class ClickBooks:
    """The click ids of a run, and what is known of the keys that sign them."""

    def __init__(self, postgres: PostgresServer) -> None:
        self._postgres = postgres
        self._issued: dict[int, tuple[str, Key, Issued]] = {}
        self._valid: list[Key] = []
        self._secrets: set[bytes] = set()
        self._unsure: set[str] = set()  # click ids that were valid for some of the time
        self._sent: dict[str, bool] = {}  # by event id: whether its click was valid at first

    def text(self, number: int, wall_s: float) -> str:
        """The id of a click; made when it is first asked for."""
        if number < 0:
            return FORGED
        if number not in self._issued:
            self._issued[number] = self._issue(number, int(wall_s) - AGES_S[number % len(AGES_S)])
        return self._issued[number][0]

    def sent(self, event_id: str, click_id: str | None) -> None:
        """Note that an event is sent, perhaps again."""
        keys = [key for id, key, _ in self._issued.values() if id == click_id]
        self._sent.setdefault(event_id, all(key in self._valid for key in keys))

    def rotate(self) -> None:
        """Sign with another key; the one before stays valid."""
        before = (self._valid or self._keys())[-1]
        self._run(conversions.rotate_keys(self._postgres.admin))
        self._valid = [before, self._keys()[-1]]
        self._doubt()

    def warehouse_changed(self) -> None:
        """Note that the warehouse was replaced, or restored from an older copy."""
        self._valid = self._keys()
        self._sent = dict.fromkeys(self._sent, True)  # it may have them, from when they were valid
        self._doubt()

    def _doubt(self) -> None:
        self._unsure |= {id for id, key, _ in self._issued.values() if key not in self._valid}

    def _issue(self, number: int, clicked_s: int) -> tuple[str, Key, Issued]:
        self._valid = self._valid or self._keys()
        campaign, ssp = list(CPMS)[number % len(CPMS)], SSPS[number % len(SSPS)].descriptor
        numbers = self._run(self._postgres.admin.fetchrow(_NUMBERS, campaign, ssp))
        digest = creative_digest(CREATIVE)
        key = self._valid[-1]
        id = ClickKey(*key).make(Click(numbers[0], digest, numbers[1], clicked_s))
        return id, key, Issued(campaign, digest.hex(), ssp, clicked_s * 1000)

    def _keys(self) -> list[Key]:
        """The warehouse's keys; each has a secret of the run's own, so that a seed is one run."""
        rows: Any = self._run(self._postgres.admin.fetch(_KEYS))
        keys = [(row["number"], bytes(row["secret"])) for row in rows]
        for place, (number, secret) in enumerate(keys):
            if secret not in self._secrets:
                own = sha256(b"own %d" % len(self._secrets)).digest()
                self._run(self._postgres.admin.execute(_RENEW, number, own))
                self._secrets.add(own)
                keys[place] = number, own
        return keys

    def _run(self, work: Any) -> Any:
        return self._postgres.run(work)

    def compare(self) -> list[str]:
        """What differs once all events have been carried."""
        issued = {id: meaning for id, _, meaning in self._issued.values()}
        rows: Any = self._run(self._postgres.admin.fetch(_EVENTS))
        known = [row for row in rows if row["click_id"] in issued and INVALID in row["flags"]]
        gone = {row["event_id"] for row in known if row["click_id"] in self._unsure}
        expected = attribute((_happened(row, gone) for row in rows), issued)
        wrong = []
        flags = zip(rows, expected.flags, strict=True)
        if misflagged := [row["event_id"] for row, flag in flags if _flag(row) != flag]:
            wrong.append(f"click ids have other flags: {len(misflagged)}, such as {misflagged[0]}")
        retired = [row for row in rows if not self._sent.get(row["event_id"], True)]
        if valid := [row["event_id"] for row in retired if INVALID not in row["flags"]]:
            wrong.append(f"click ids of retired keys are valid: {len(valid)}")
        counted: Any = self._run(self._postgres.admin.fetch(_SUMS))
        found = {Sum(*row[:5]): tuple(row[5:]) for row in counted}
        keys = [
            key for key in {**found, **expected.sums} if found.get(key) != expected.sums.get(key)
        ]
        for key in keys[:_SHOWN]:
            wrong.append(f"conversions of {key}: {found.get(key)}, not {expected.sums.get(key)}")
        return wrong


def _flag(row: Mapping[str, Any]) -> str:
    return next((flag for flag in row["flags"] if flag in (INVALID, EXPIRED, LATER)), "")


def _happened(row: Mapping[str, Any], gone: set[str]) -> Happened:
    """An event as it is stored; without the click id whose key was gone."""
    context = json.loads(row["context"])
    value = {
        "deposit": context.get("amount"),
        "withdraw": -context.get("amount", 0),
        "bet": 0 if context.get("is_free") else -context.get("bet_result_amount", 0),
    }.get(row["event"], 0)
    micros = round(value * 1_000_000) if context.get("currency") == "USD" else 0
    return Happened(
        row["product"], row["event"], row["occurred"], row["received"], row["client_user_id"],
        row["anonymous_id"], FORGED if row["event_id"] in gone else row["click_id"], micros,
    )  # fmt: skip


_KEYS: Final = "select number, secret from click_key order by number"
_RENEW: Final = "update click_key set secret = $2 where number = $1"
_NUMBERS: Final = """
select c.number as campaign, s.number as ssp from campaign_number c, ssp_number s
where c.id = $1 and s.descriptor = $2
"""
_EVENTS: Final = """
select event_id, product, event, round(extract(epoch from occurred_at) * 1000)::bigint as occurred,
    round(extract(epoch from received_at) * 1000)::bigint as received,
    client_user_id, anonymous_id, click_id, flags, context::text as context
from events order by arrival
"""
_SUMS: Final = """
select day, campaign, creative, descriptor, event, conversions, value_micros, first_deposits
from conversion_daily
"""
