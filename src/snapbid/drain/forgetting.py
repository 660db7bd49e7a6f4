"""Forget persons: remove their data from the warehouse, and suppress later data.

A user id identifies a person only in one place: `1001` may be one user of a product, a different
user of another product, and a third at an SSP. So a request must name the place, unless the
warehouse knows the id from one place only. Device ids, click ids, email addresses and phone numbers
identify the same person everywhere.

Later events of a forgotten person are stored without personal data. Only a self-exclusion is kept:
it must also hold for a forgotten person, and needs only the hash of an id.
"""

import ipaddress
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

import asyncpg
import msgspec

from snapbid.campaigns.persons import PersonKey, folded, is_somebody
from snapbid.campaigns.suppression import (
    Identifies,
    Suppression,
    cap_names,
    event_name,
    event_names,
    hash_of,
    is_unique,
    spellings,
)
from snapbid.events import personal
from snapbid.events.personal import ids_in, without_others
from snapbid.queues import queue
from snapbid.warehouse import audiences, persons, products, registry
from snapbid.warehouse.events import EventRow

MAX_ID = 1024

Id = tuple[Identifies | None, str]


class ForgetError(ValueError):
    """A request to forget is refused; the message names the rule."""


class ConsentError(ForgetError):
    """A request has effects that need the operator's consent."""


class Asked(NamedTuple):
    """The ids to forget, and the SSPs or products to which they belong.

    A `user.id` belongs to an SSP, a user id in events to a product. If no SSP or product is named,
    an id is forgotten where the warehouse knows it; one known to several SSP families or products
    is refused, unless `everywhere` is set.
    """

    ids: Sequence[str]
    products: Collection[str] = ()
    ssps: Collection[str] = ()
    everywhere: bool = False


class Forgotten(NamedTuple):
    """The result of forgetting a person."""

    removed: dict[str, int]  # rows by kind
    places: list[str]
    users: int  # whose events have the ids
    excluded: int  # persons who had self-excluded or refused marketing
    caps: list[str]  # the ids as users in frequency caps
    hashed: int  # addresses and phone numbers among the ids


class Place(NamedTuple):
    """A product or a family of SSPs in which an id may identify a user.

    `former`: the other canonical ids that SSPs of the family had earlier.
    """

    kind: str
    name: str
    former: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    @property
    def families(self) -> tuple[str, ...]:
        """The canonical ids under which a family's users may be known; empty for a product."""
        return (self.name, *self.former) if self.kind == "ssp" else ()

    def hashes(self, key: PersonKey, ids: Iterable[str]) -> set[int]:
        """Return the hashes of `ids`: members' hashes for an SSP, persons' hashes for a product."""
        if self.kind == "ssp":
            return {key.member("user", id, family) for id in ids for family in self.families}
        return {of(self.name, id) for id in ids for of in (key.user, key.visitor)}


class Match(NamedTuple):
    """A stored event that contains ids to forget.

    `names`: the names that `event_names` gives these ids; `own`: those of the event's person.
    """

    row: persons.Mention
    names: frozenset[str]
    own: frozenset[str]

    def without(self, wanted: Collection[str]) -> str:
        """Return the context without the ids with these names, none of which is of the person."""
        product, context = self.row.product, msgspec.json.decode(self.row.context)
        return _json(without_others(context, lambda *id: bool(_names(product, [id], wanted))))


def check(ids: Iterable[str]) -> None:
    """Raise ForgetError if any id identifies nobody, or many persons."""
    wrong = [why for id in ids if (why := _refusal(id)) is not None]
    if wrong:
        raise ForgetError("\n".join(wrong))


def _refusal(id: str) -> str | None:
    if not id or len(id) > MAX_ID:
        return f"--id must have 1 to {MAX_ID} characters"
    if _is_address(id):
        return f"--id {id[:60]!a} is an IP address, which many share: name the person's own ids"
    if not (is_somebody(id) and is_somebody(id.rpartition(" ")[2])):
        return f"--id {id[:60]!a} is nobody's: senders write it when they have no id"
    return None


def _is_address(id: str) -> bool:
    try:
        ipaddress.ip_address(id.strip())
    except ValueError:
        return False
    return True


# -- where ids are ---------------------------------------------------------------------------------


def ids_of(row: EventRow | persons.Mention | persons.Conflict) -> Iterator[Id]:
    """Yield the ids in an event that may identify a person."""
    yield from _identity(row)
    yield from ids_in(msgspec.json.decode(row.context))


def _identity(row: EventRow | persons.Mention | persons.Conflict) -> Iterator[Id]:
    for identifies, id in (
        ("user", row.client_user_id), ("user", row.anonymous_id), ("person", row.click_id),
    ):  # fmt: skip
        if id is not None:
            yield identifies, id  # type: ignore[misc]


def _own_ids(row: EventRow | persons.Mention, context: Any) -> Iterator[Id]:
    """Yield the ids of an event's own person: not a referrer's, nor text like an id."""
    yield from _identity(row)
    yield from (id for id in ids_in(context) if id[0] == "person")


def suppressed(row: EventRow, suppression: Suppression) -> EventRow:
    """Return an event as it may be stored: emptied if its person is forgotten.

    Of other forgotten persons, it loses the ids. Returns `row` itself if nothing is removed.
    """
    context = msgspec.json.decode(row.context)
    if any(suppression.has_id(row.product, *id) for id in _own_ids(row, context)):
        return emptied(row)
    kept = without_others(context, lambda *id: suppression.has_id(row.product, *id))
    return row if kept == context else row._replace(context=_json(kept))


def _json(context: Any) -> str:
    return msgspec.json.encode(context).decode()


def _names(product: str, ids: Iterable[Id], wanted: Collection[str]) -> frozenset[str]:
    named = (name for identifies, id in ids for name in event_names(product, identifies, id))
    return frozenset(name for name in named if name in wanted)


async def _matches(
    connection: asyncpg.Connection, ids: Sequence[str], wanted: Collection[str]
) -> list[Match]:
    found = []
    async for row in persons.fetch_mentions(connection, *_sought(ids)):
        if names := _names(row.product, ids_of(row), wanted):
            own = _own_ids(row, msgspec.json.decode(row.context))
            found.append(Match(row, names, _names(row.product, own, wanted)))
    return found


def _sought(ids: Iterable[str]) -> tuple[list[str], list[str]]:
    """Split ids into those compared as written, and those compared in any spelling (folded)."""
    return [id for id in ids if not is_unique(id)], [folded(id) for id in ids if is_unique(id)]


def _letter_names(letter: persons.Letter, wanted: Collection[str]) -> bool:
    """Return whether a dead letter contains one of the wanted ids, or cannot be read."""
    try:
        product, ids = _ids_in(letter.payload)
        return bool(_names(product, ids, wanted))
    except (msgspec.DecodeError, AttributeError):
        return True


def is_letter_of(payload: bytes, suppression: Suppression) -> bool:
    """Return whether a dead letter is readable, and has an id of a forgotten person."""
    try:
        product, ids = _ids_in(payload)
    except (msgspec.DecodeError, AttributeError):
        return False
    return any(suppression.has_id(product, *id) for id in ids)


def _ids_in(payload: bytes) -> tuple[str, list[Id]]:
    """Return the product of queued events, and the ids in them.

    Raises DecodeError or AttributeError if the events cannot be read.
    """
    read = queue.decode(payload)
    documents = [msgspec.json.decode(envelope) for _, envelope in read.events]
    return read.product, [id for document in documents for id in _ids_of(document)]


def _ids_of(document: dict[str, Any]) -> Iterator[Id]:
    for name, id in document.get("identity", {}).items():
        if isinstance(id, str):
            yield ("person" if name == "click_id" else "user"), id
    yield from ids_in(document.get("context"))


# -- which of them are the person's ---------------------------------------------------------------


async def _places(connection: asyncpg.Connection) -> list[Place]:
    canonical = await registry.fetch_families(connection)
    former = {family: set[str]() for family in canonical.values()}
    for descriptor, ids in (await registry.fetch_former_ids(connection)).items():
        former[canonical[descriptor]].update(ids)
    names = sorted(await products.fetch_names(connection))
    return [
        *(Place("product", each) for each in names),
        *(Place("ssp", family, tuple(sorted(of))) for family, of in sorted(former.items())),
    ]


async def _named(
    connection: asyncpg.Connection, asked: Asked, every: Sequence[Place]
) -> list[Place]:
    """Return the places that a request names. Raises ForgetError for unknown places."""
    if asked.everywhere:
        return list(every)
    canonical = await registry.fetch_families(connection)
    known = {place[:2]: place for place in every}
    names = [("product", name) for name in asked.products]
    names += [("ssp", canonical.get(name, name)) for name in asked.ssps]
    if unknown := [f"there is no {Place(*name)}" for name in names if name not in known]:
        raise ForgetError("\n".join(unknown))
    return [known[name] for name in names]


async def _resolve(
    connection: asyncpg.Connection,
    key: PersonKey,
    ids: Sequence[str],
    every: Sequence[Place],
    names: Collection[str],
) -> dict[str, list[Place]]:
    """Map each id to the places, out of `every`, where the warehouse knows it as a user's id.

    An id known nowhere is mapped to the product if there is only one, and to the family of SSPs if
    there is only one. Raises ForgetError for ids known in several places. A product also knows an
    id if its `event_name` is in `names`, which lists the names of ids in stored events and
    conflicts.
    """
    found, wrong = {}, []
    for id in ids:
        hashes = {place: place.hashes(key, spellings([id])) for place in every}
        stored = await audiences.fetch_known(connection, set[int]().union(*hashes.values()))
        known = [
            place
            for place in every
            if hashes[place] & stored or (place.kind == "product"
                                          and event_name(id, place.name) in names)
        ]  # fmt: skip
        if len(known) > 1:
            wrong.append(
                f"--id {id[:60]!a} is known as a user of {', '.join(map(str, known))}, which may be"
                " different persons: name the place with --product or --ssp, or pass --everywhere"
            )
        found[id] = known or _only(every, "product") + _only(every, "ssp")
    if wrong:
        raise ForgetError("\n".join(wrong))
    return found


def _only(every: Iterable[Place], kind: str) -> list[Place]:
    places = [place for place in every if place.kind == kind]
    return places if len(places) == 1 else []


# -- forgetting ------------------------------------------------------------------------------------


async def forget(
    connection: asyncpg.Connection, asked: Asked, *, consents: bool = False
) -> Forgotten:
    """Remove all data of a person from the warehouse, and suppress the ids.

    Email addresses and phone numbers are also found where events have only their hashes.
    With `consents`, this may affect several users and end a self-exclusion. Requires a transaction;
    until that ends, others cannot store events. Raises ForgetError.
    """
    check(asked.ids)
    hashes = {hashed for id in asked.ids if (hashed := personal.hash_of(id)) is not None}
    ids = [*asked.ids, *sorted(hashes.difference(asked.ids))]
    secret = (await persons.fetch_suppression(connection)).key
    key, every = PersonKey(secret), await _places(connection)
    named = await _named(connection, asked, every)
    await persons.hold_events(connection)
    possible = _event_names(dict.fromkeys(ids, every))
    matches = await _matches(connection, ids, possible)
    conflicts = await persons.fetch_conflicts(connection, *_sought(ids))
    seen = frozenset[str]().union(
        *(match.names for match in matches),
        *(_names(each.product, ids_of(each), possible) for each in conflicts),
    )
    where = (
        dict.fromkeys(ids, named)
        if named or asked.everywhere
        else await _resolve(connection, key, ids, every, seen)
    )
    wanted = _event_names(where)
    matches = [match for match in matches if match.names & wanted]
    users, members = _hashes(key, where)
    in_caps = _in_caps(where)
    excluded = await audiences.count_excluded(connection, users, members)
    others = {
        (match.row.product, match.row.client_user_id)
        for match in matches
        if match.own & wanted and match.row.client_user_id is not None
    }
    if not consents:
        _require_consent(others, ids, excluded)
    await persons.suppress(
        connection, {hash_of(secret, name) for name in wanted.union(in_caps)}, members
    )
    digests = [
        each.digest
        for each in conflicts
        if not each.has_sender or _names(each.product, ids_of(each), wanted)
    ]
    removed = await _erase(connection, ids, wanted, matches, digests, users)
    removed["persons"] = await audiences.erase(connection, users, members)
    places = sorted({str(place) for each in where.values() for place in each})
    return Forgotten(removed, places, len(others), excluded, in_caps, len(hashes))


def _event_names(where: Mapping[str, Iterable[Place]]) -> set[str]:
    names = {event_name(id) for id in where}
    for id, places in where.items():
        names |= {event_name(id, place.name) for place in places if place.kind == "product"}
    return names


def _hashes(key: PersonKey, where: Mapping[str, Iterable[Place]]) -> tuple[set[int], set[int]]:
    """Return all hashes that the ids can have: as persons in events, as members in bid requests."""
    users, members = set[int](), set[int]()
    for id, places in where.items():
        spelt = spellings([id])
        members |= {key.member(kind, each) for kind in ("ifa", "buyeruid", "eid") for each in spelt}
        source, _, own = id.partition(" ")
        if own:
            members.add(key.member("eid", own, source))
        for place in places:
            (members if place.kind == "ssp" else users).update(place.hashes(key, spelt))
    return users, members


def _in_caps(where: Mapping[str, Iterable[Place]]) -> list[str]:
    """Return the keys under which frequency caps may count users with these ids."""
    return sorted(
        name
        for id, places in where.items()
        for spelt in spellings([id])
        for name in cap_names(spelt, [family for of in places for family in of.families])
    )


def _require_consent(users: Collection[tuple[str, str]], ids: Sequence[str], excluded: int) -> None:
    """Raise ConsentError if forgetting affects users not named, or undoes a self-exclusion."""
    why = []
    unnamed = {user for user in users if user[1] not in spellings(ids)}
    if len(users) > 1 and unnamed:
        shown = ", ".join(sorted(f"{user!a} of {product}" for product, user in unnamed)[:10])
        why.append(
            f"the ids are in events of {len(users)} users (client_user_id), {len(unnamed)} of whom"
            f" are not named: {shown}"
        )
    if excluded:
        who = "1 person has" if excluded == 1 else f"{excluded} persons have"
        why.append(
            f"{who} self-excluded or refused marketing, which this would undo: they would be shown"
            " campaigns again until they repeat it"
        )
    if why:
        raise ConsentError("\n".join(why))


async def _erase(
    connection: asyncpg.Connection,
    ids: Sequence[str],
    wanted: Set[str],
    matches: Sequence[Match],
    conflicts: Collection[bytes],
    users: Collection[int],
) -> dict[str, int]:
    letters = [
        each.number
        for each in await persons.fetch_letters(connection, *_sought(ids))
        if _letter_names(each, wanted)
    ]
    emptied = {each.row.event_id: each.row.received_at for each in matches if each.own & wanted}
    changed = [
        (each.row.event_id, each.row.received_at, each.without(wanted))
        for each in matches
        if not each.own & wanted
    ]
    erased = await persons.erase(connection, emptied, changed, conflicts, letters, users)
    return erased._asdict()


# -- afterwards ------------------------------------------------------------------------------------


def is_emptied(row: EventRow) -> bool:
    """Return whether an event is of a forgotten person: all others have a user or a visitor."""
    return row.client_user_id is None and row.anonymous_id is None


def emptied(row: EventRow) -> EventRow:
    """Return a copy of an event without personal data."""
    return row._replace(
        client_user_id=None,
        anonymous_id=None,
        click_id=None,
        context="{}",
        enrichment="{}",
        sequence=None,
        value_micros=0,
    )
