"""Lets the plain bidder of `oracle` decide over very many campaigns, and over changes of them.

Bit sets, a bit per campaign, narrow a request's candidates by a few dimensions and by the formats
of the creatives. The oracle judges these block by block, from the highest price down. The first
block with an answer has all right answers, since campaigns of the same price share a block. A
document stays JSON until it is needed.
"""

import heapq
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from random import Random
from typing import Any

import msgspec

from snapbid.bidding.snapshot import CatalogSnapshot
from support import oracle
from support.agreement import campaigns_of, decided, disagreement
from support.oracle_pods import Separation, guaranteed_first
from support.oracle_reading import Facts, Slot, World, read_impression, read_request
from support.oracle_values import Document

BLOCK = 20
FILTERED = ("country", "region", "city", "os", "device_type", "inventory", "segment")
Ranked = tuple[int, str, bytes]  # price in micro-USD, negative; id; document
Changes = dict[str, Document | None]  # by id; None: deleted
Bits = int  # bit n: the campaign at index n


class _Priced(msgspec.Struct):
    id: str
    cpm: float


def _ranked(document: bytes) -> Ranked:
    campaign = msgspec.json.decode(document, type=_Priced)
    return -oracle.micros(campaign.cpm), campaign.id, document


class Crowd:
    """The campaigns of these JSON documents."""

    def __init__(self, world: World, documents: Iterable[bytes]) -> None:
        self._world = world
        self._ranked = sorted(map(_ranked, documents))
        self._places = {id: place for place, (_, id, _) in enumerate(self._ranked)}
        self._changed: dict[str, Ranked | None] = {}
        self._standing: Bits = (1 << len(self._ranked)) - 1
        self._named: dict[tuple[str, Any], Bits] = {}  # (dimension, value), or what kind of key
        self._read_all()

    def _read_all(self) -> None:
        size = len(self._ranked) // 8 + 1
        rows: defaultdict[tuple[str, Any], bytearray] = defaultdict(lambda: bytearray(size))
        entry = cache(lambda name, value: oracle.entry(self._world, name, value))
        for place, (_, _, text) in enumerate(self._ranked):
            document = msgspec.json.decode(text)
            keys = {("format", _format(creative)) for creative in document["creatives"]}
            for name, lists in document.get("targeting", {}).items():
                if name in FILTERED and (include := lists.get("include")):
                    keys |= {(name, entry(name, value)) for value in include}
                    keys.add(("closed", name))
            for key in keys:
                rows[key][place >> 3] |= 1 << (place & 7)
        for key, row in rows.items():
            self._named[key] = int.from_bytes(row, "little")

    def take(self, changes: Changes) -> None:
        """Change, add and delete campaigns."""
        for id, document in changes.items():
            text = json.dumps(document).encode()
            self._changed[id] = None if document is None else _ranked(text)
            if id in self._places:
                self._standing &= ~(1 << self._places[id])

    def offers(
        self, ssp: str, request: Document, answered: Mapping[str, str]
    ) -> dict[str, set[oracle.Offer]]:
        """As `oracle.offers`."""
        facts = read_request(self._world, ssp, request)
        separation, wanted = Separation(), {}
        read = [read_impression(self._world, imp, facts) for imp in request["imp"]]
        for slot in map(separation.apart, guaranteed_first(read)):
            wanted[slot.id] = self._best(facts, slot)
            if slot.id in answered:
                document = msgspec.json.decode(self._document(answered[slot.id]))
                separation.take(slot, document["advertiser"])
        return wanted

    def _document(self, id: str) -> bytes:
        changed = self._changed.get(id)
        return self._ranked[self._places[id]][2] if changed is None else changed[2]

    def _best(self, facts: Facts, slot: Slot) -> set[oracle.Offer]:
        for block in self._blocks(self._candidates(facts, slot)):
            if offers := oracle.best(replace(self._world, campaigns=block), facts, slot):
                return offers
        return set()

    def _candidates(self, facts: Facts, slot: Slot) -> Bits:
        candidates = self._standing
        for name in FILTERED:
            admitted = ~self._named.get(("closed", name), 0)
            for value in facts.values[name]:
                admitted |= self._named.get((name, value), 0)
            candidates &= admitted
        fitting = 0
        for format in _formats(slot):
            fitting |= self._named.get(("format", format), 0)
        return candidates & fitting

    def _blocks(self, candidates: Bits) -> Iterator[list[Document]]:
        changed = sorted(entry for entry in self._changed.values() if entry is not None)
        standing = (self._ranked[place] for place in _places(candidates))
        block: list[Document] = []
        last = 0
        for price, _, document in heapq.merge(standing, changed):
            if len(block) >= BLOCK and price != last:
                yield block
                block = []
            last = price
            block.append(msgspec.json.decode(document))
        yield block

    def changes(self, random: Random, wanted: Sequence[str], count: int) -> Changes:
        """Change `count` campaigns, the `wanted` ones first, and add as many new ones."""
        some = [random.choice(self._ranked)[1] for _ in range(count)]
        now = {
            id: self._ranked[self._places[id]][2] for id in (*wanted, *some) if id in self._places
        }
        now |= {id: entry[2] for id, entry in self._changed.items() if entry is not None}
        drawn: Changes = {}
        for id in [*dict.fromkeys(wanted), *some][:count]:
            other = msgspec.json.decode(random.choice(self._ranked)[2])
            document = msgspec.json.decode(now[id]) if id in now else {**other, "id": id}
            drawn[id] = random.choice(FATES)(document, other)
            new = {**other, "id": f"new {id}", "cpm": random.choice((0.5, 2, 8, 20))}
            drawn[new["id"]] = new
        return drawn


FATES: Sequence[Callable[[Document, Document], Document | None]] = (
    lambda document, other: None,
    lambda document, other: {**document, "status": "paused"},
    lambda document, other: {**document, "status": "active"},
    lambda document, other: {**document, "cpm": round(document["cpm"] * 2, 2)},
    lambda document, other: {**document, "cpm": 0.01},
    lambda document, other: {**other, "id": document["id"]},
)


def _places(bits: Bits) -> Iterator[int]:
    for at, byte in enumerate(bits.to_bytes(bits.bit_length() // 8 + 1, "little")):
        if byte:
            yield from (8 * at + bit for bit in range(8) if byte >> bit & 1)


def _format(creative: Document) -> Any:
    media = creative["media"]
    return (media, creative["w"], creative["h"]) if media == "banner" else media


def _formats(slot: Slot) -> Iterator[Any]:
    for media, asked in slot.media.items():
        yield from (
            [(media, *size) for size in oracle.sizes(asked)] if media == "banner" else [media]
        )


@dataclass
class Tally:
    """The counts of what was compared, and the requests with different answers."""

    requests: int = 0
    bids: int = 0
    changes: int = 0
    differences: list[Any] = field(default_factory=list)


def compare(
    crowd: Crowd,
    world: World,
    ssp: str,
    rounds: Sequence[Sequence[Document]],
    publish: Callable[[Changes], CatalogSnapshot],
    changes: int,
) -> Tally:
    """Compare the product with the oracle in rounds of requests, with changes before each round.

    Campaigns that won in a round are changed before the next one, which repeats its requests.
    """
    random, tally = Random("crowd"), Tally()
    before: Sequence[Document] = ()
    winners: list[str] = []
    for fresh in rounds:
        made = crowd.changes(random, winners, changes)
        crowd.take(made)
        snapshot = publish(made)
        tally.changes += len(made)
        winners = []
        for request in (*fresh, *before):
            answers = decided(world, snapshot, ssp, request)
            wanted = crowd.offers(ssp, request, campaigns_of(answers))
            if (difference := disagreement(wanted, answers)) is not None:
                tally.differences.append((request["id"], difference))
            winners += [offer.campaign for offer in answers.values()]
            tally.requests += 1
            tally.bids += len(answers)
        before = fresh
    return tally
