"""Server events of a run: what partners send, and what must be stored of it (contract 7).

An event that was answered 202 is in the stream or in the warehouse from then on, until one of them
comes back with older data; in the end the warehouse has it, once, as one of the requests sent it.
"""

import contextlib
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from redis.asyncio import Redis

from snapbid.base.redis_keys import ShardKeys
from snapbid.drain.accepted import AcceptedEvents
from snapbid.drain.audit import fetch_recorded
from snapbid.events.outcomes import AcceptedEvent, Product, SingleResult
from snapbid.events.validate import read_single
from snapbid.queues import queue
from snapbid.warehouse.comparison import compare_conversions
from support.simulator import clicks
from support.simulator.entries import NEVER
from support.simulator.script import START_S
from support.simulator.servers import Servers

PRODUCT: Final = Product("casino", frozenset({"igaming"}))
LIKELY: Final = 0.3  # that a run has events
_SHOWN: Final = 3  # of the events that differ


class Version(NamedTuple):
    """An event as it was sent: another one with the same id is a conflict."""

    event_id: str
    content: str  # canonical JSON


@dataclass(eq=False)
class Sending:
    """A request with events; `received_ms` is the time that the worker gave it."""

    versions: list[Version]
    received_ms: int
    sent_at: float
    answered_at: float = NEVER
    is_accepted: bool = False


class Stored(NamedTuple):
    """What the stores have: of each version how often, and when the first one of an id came."""

    queued: Counter[Version]
    rows: dict[Version, int]  # received_at, epoch ms
    conflicts: set[Version]
    dead: int
    misflagged: int  # cash-outs

    @property
    def versions(self) -> set[Version]:
        return {*self.queued, *self.rows, *self.conflicts}


class EventBooks:
    """`wrong` takes what differs."""

    def __init__(self, wrong: list[str]) -> None:
        self._wrong = wrong
        self._sendings: list[Sending] = []
        self._changed_at = -1.0  # when a store came back with other data
        self._kept: set[Version] = set()  # what was there then
        self._carried: set[Version] = set()  # what the warehouse had before

    def sent(self, sending: Sending) -> None:
        self._sendings.append(sending)

    def stores_change(self, stored: Stored) -> None:
        """One of them comes back with other data; this is what they have before."""
        self._miss(stored, "in neither store")
        self._carried = {*stored.rows, *stored.conflicts}

    def stores_changed(self, stored: Stored, now: float) -> None:
        """This is what they have after it.

        What the warehouse had before may leave the stream yet: its removal may be under way.
        """
        self._changed_at = now
        self._kept = (stored.queued.keys() - self._carried) | stored.rows.keys() | stored.conflicts

    def compare(self, stored: Stored) -> list[str]:
        """What differs once all has been carried."""
        wrong: list[str] = []
        received: dict[Version, set[int]] = {}
        for sending in self._sendings:
            for version in sending.versions:
                received.setdefault(version, set()).add(sending.received_ms)
        missing = self._promised() - stored.rows.keys() - stored.conflicts
        if missing:
            wrong.append(f"events are not stored: {_names(missing)}")
        if strange := (stored.rows.keys() | stored.conflicts) - received.keys():
            wrong.append(f"events were stored that were not sent: {_names(strange)}")
        if twice := stored.rows.keys() & stored.conflicts:
            wrong.append(f"events are in conflict with themselves: {_names(twice)}")
        rows = stored.rows.items()
        if late := {version for version, at in rows if at not in received.get(version, {at})}:
            wrong.append(f"events came at another time: {_names(late)}")
        if stored.queued:
            wrong.append(f"events are not carried: {_names(stored.queued)}")
        if stored.dead:
            wrong.append(f"events are dead letters: {stored.dead}")
        if stored.misflagged:
            wrong.append(f"cash-outs have other flags than they should: {stored.misflagged}")
        return wrong

    @property
    def are_kept(self) -> bool:
        """Whether no store has come back with other data."""
        return self._changed_at < 0

    @property
    def accepted(self) -> int:
        """How many were answered 202."""
        return sum(len(sending.versions) for sending in self._sendings if sending.is_accepted)

    def _promised(self) -> set[Version]:
        """Those that must be there."""
        return {
            version
            for sending in self._sendings
            if sending.is_accepted
            for version in sending.versions
            if sending.sent_at > self._changed_at
            or (sending.answered_at <= self._changed_at and version in self._kept)
        }

    def _miss(self, stored: Stored, where: str) -> None:
        if missing := self._promised() - stored.versions:
            self._wrong.append(f"events are {where}: {_names(missing)}")


def _names(versions: Iterable[Version]) -> str:
    names = sorted({version.event_id for version in versions})
    return f"{len(names)}, such as {', '.join(names[:_SHOWN])}"


# -- what is sent --------------------------------------------------------------------------------


def draw(seed: str, seconds: float, workers: list[str]) -> list[tuple[float, str, str]]:
    """Requests with events, for some seeds: when, to which worker, and which (see `read`)."""
    rng = random.Random(f"{seed} events")
    if rng.random() >= LIKELY:
        return []
    requests = clicks.draw_requests(rng, "e", (5, 15, 40), (1, 1, 1, 2, 5), seconds, workers)
    requests += _draw_bonuses(random.Random(f"{seed} bonuses"), seconds, workers)
    return requests + clicks.draw(seed, seconds, workers)


def _draw_bonuses(
    rng: random.Random, seconds: float, workers: list[str]
) -> list[tuple[float, str, str]]:
    """Bonuses with many cash-outs, before and after their claim."""
    requests = []
    for bonus in range(rng.choice((0, 0, 1, 3))):
        for start in range(1, rng.choice((5, 60)), 10):
            names = ",".join(f"c{bonus}.{amount}" for amount in range(start, start + 10))
            requests.append((0.3 + rng.random() * seconds, rng.choice(workers), names))
        requests.append((0.3 + rng.random() * seconds, rng.choice(workers), f"c{bonus}.0"))
    return requests


def read(name: str, now_ms: int, click_id: Callable[[int], str]) -> AcceptedEvent | None:
    """The event `eNUMBER.VARIANT`, `kNUMBER.VARIANT` of a click, or `cBONUS.AMOUNT`, 0: the claim.

    None where it is refused. Variants of a number share an id.
    """
    number, variant = map(int, name[1:].split("."))
    if name[0] == "k":
        sent = clicks.event_of(number, variant)
        if sent.click is not None:
            sent.identity["click_id"] = click_id(sent.click)
        at_ms = START_S * 1000 + number - sent.age_ms
        return _read(sent.event, sent.context, at_ms, sent.identity, now_ms)
    if name[0] == "c":
        at_ms, identity = START_S * 1000 + variant, {"client_user_id": f"b{number}"}
        return _read(*_of_bonus(number, variant), at_ms, identity, now_ms)
    kind = ("login", "deposit_initiated", "deposit", "withdraw", "app_open")[number % 5]
    context: dict[str, Any] = {"ip_address": "192.0.2.1", "mark": variant}
    if kind == "app_open":
        context["platform"] = "ios"
    elif kind == "login":
        context["user_agent"] = "Mozilla/5.0"
    else:
        context |= {"transaction_id": f"t{number // 5}", "amount": 5, "currency": "EUR"}
    identity = {"client_user_id": f"u{number}"}
    return _read(kind, context, START_S * 1000 + number, identity, now_ms)


def _of_bonus(bonus: int, amount: int) -> tuple[str, dict[str, Any]]:
    context = {"ip_address": "192.0.2.1", "bonus_id": f"b{bonus}", "currency": "EUR"}
    if not amount:
        return "bonus_claimed", context | {"bonus_value_granted": 1, "wagering_requirement": 1}
    more = {"cashout_amount": amount, "original_bonus_value": 1, "time_to_cashout_minutes": 1}
    return "bonus_cashed_out", context | more


def _read(
    kind: str, context: dict[str, Any], at_ms: int, identity: dict[str, str], now_ms: int
) -> AcceptedEvent | None:
    document = {"event": kind, "timestamp": at_ms, "identity": identity, "context": context}
    result = read_single(json.dumps(document).encode(), PRODUCT, now_ms)
    return result.event if isinstance(result, SingleResult) else None


def version(event_id: str, envelope: bytes) -> Version:
    return _version(event_id, json.loads(envelope))


def _version(event_id: str, document: Mapping[str, Any]) -> Version:
    return Version(event_id, json.dumps(document, sort_keys=True))


# -- what is stored ------------------------------------------------------------------------------

_IDS: Final = ("client_user_id", "anonymous_id", "click_id")
_ROWS: Final = """
    select event_id, event, client_user_id, anonymous_id, click_id, context::text as context,
        round(extract(epoch from occurred_at) * 1000)::bigint as occurred,
        round(extract(epoch from received_at) * 1000)::bigint as received
    from events
"""
_CONFLICTS: Final = """
    select c.event_id, event, c.client_user_id, c.anonymous_id, c.click_id,
        c.context::text as context,
        round(extract(epoch from occurred_at) * 1000)::bigint as occurred
    from event_conflicts c join events e using (event_id)
"""


# There is no completion: one reference of a cash-out is missing for ever.
_MISFLAGGED: Final = """
    select count(*) from events e
    left join events c on c.event = 'bonus_claimed' and c.product = e.product
        and c.context ->> 'bonus_id' = e.context ->> 'bonus_id'
    where e.event = 'bonus_cashed_out' and e.flags is distinct from
        case when c.arrival > e.arrival then '{reference_missing,out_of_order}'::text[]
        else '{reference_missing}' end
"""


def stored(servers: Servers, shards: int) -> Stored:
    """Look into both stores."""
    postgres = servers.postgres
    queued: Counter[Version] = Counter()
    for shard in range(shards):
        entries: Any = servers.redis.client.xrange(ShardKeys(shard).events)
        for _, fields in entries:
            for packed in fields.values():
                queued.update(version(*event) for event in queue.decode(packed).events)
    rows = postgres.run(postgres.admin.fetch(_ROWS))
    conflicts = postgres.run(postgres.admin.fetch(_CONFLICTS))
    dead = postgres.run(postgres.admin.fetchval("select count(*) from event_dead_letters"))
    return Stored(
        queued,
        {_of_row(row): row["received"] for row in rows},
        {_of_row(row) for row in conflicts},
        dead,
        postgres.run(postgres.admin.fetchval(_MISFLAGGED)),
    )


def audited(servers: Servers, shards: int, *, are_kept: bool) -> list[str]:
    """What the self-audit finds but for figures that the books compare.

    Without `are_kept` not of accepted events, of which a store may have lost some.
    """
    found = servers.postgres.run(_audit(servers, shards, are_kept))
    return [f"the audit finds a difference: {each}" for each in found]


async def _audit(servers: Servers, shards: int, are_kept: bool) -> list[object]:
    found: list[object] = []
    admin = servers.postgres.admin
    async with contextlib.aclosing(Redis.from_url(servers.redis.url)) as client:
        events = AcceptedEvents(client, shards, lambda: 0)
        for _ in range(2 * are_kept):
            found = [*await events.compare(admin)]
        # Data that is put back here looks like that of a promoted replica.
        recorded = await fetch_recorded(client, shards, {})
        found += [each for each in recorded if each.comparison != "heartbeats"]
    for (day,) in await admin.fetch("select distinct day from conversion_daily"):
        found += await compare_conversions(admin, day)
    return found


def _of_row(row: Mapping[str, Any]) -> Version:
    document = {
        "event": row["event"],
        "timestamp": row["occurred"],
        "identity": {name: row[name] for name in _IDS if row[name] is not None},
        "context": json.loads(row["context"]),
    }
    return _version(row["event_id"], document)
