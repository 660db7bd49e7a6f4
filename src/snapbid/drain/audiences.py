"""Derive audience members from events, and persons to whom a product must not advertise.

Both are stored in the transaction that stores the events, so each event counts once, however often
it is repeated. The order of arrival does not matter: the time of an event decides (contract 12).

- An event identifies its person by `client_user_id` or, without one, by `anonymous_id`. An event
  without `client_user_id` also counts for each user behind its anonymous id, as revealed by earlier
  or later events with both ids. A placeholder id identifies nobody.
- Bid requests identify a person by a member, the hash of an id. An event reveals a member of its
  person if it has a `context.device_id`, which is an advertising id, or a click id, which contains
  the member who clicked. Members of an anonymous id are also members of each user behind it.
- `account_blocked` for `self_exclusion` restricts a person until an `account_unblocked` that names
  this reason or none. A person who consented to no channel in the last `marketing_consent_updated`,
  or not to marketing in the last `register`, is also restricted. Of events at the same time, the
  restricting one counts. An event dated after its receipt counts at the time of receipt.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

import asyncpg
import msgspec

from snapbid.campaigns.audiences import Audience, rule_of
from snapbid.campaigns.persons import PersonKey, is_member_id
from snapbid.events.catalog import EVENTS
from snapbid.events.enrich import MONETARY
from snapbid.warehouse import audiences, events, persons
from snapbid.warehouse.audiences import Count, Definition, Link, Restriction
from snapbid.warehouse.events import EventRow

SELF_EXCLUSION: Final = "self_exclusion"
CHANNELS: Final = ("allow_email", "allow_sms", "allow_push", "allow_chat_app")
MICROS: Final = 1_000_000

AUDIENCES: Final = rule_of(
    list(EVENTS),
    [name for name, amounts in MONETARY.items() if any(each.leaf == "amount" for each in amounts)],
)
"""The rule of an audience in a JSON document."""

Pair = tuple[int, int]
Known = TypeVar("Known", Link, Count)


class Persons:
    """The persons in a batch of event rows."""

    def __init__(
        self,
        key: PersonKey,
        rows: Sequence[EventRow],
        member_of_click: Callable[[str], int | None] = lambda _: None,
    ) -> None:
        self.of_row: list[int | None] = []  # the person of each row
        self.aliases: dict[Pair, None] = {}  # pairs of anonymous id and user, the newest last
        self.links: set[Link] = set()  # members by which bid requests know the persons
        self.anonymous: set[int] = set()  # ids to resolve: without a user, or with a member
        self.users: dict[int, list[int]] = {}  # anonymous id -> users behind it, once resolved
        for row in rows:
            user, visitor = key.of_event(row.product, row.client_user_id, row.anonymous_id)
            known = [person for person in (user, visitor) if person is not None]
            if user is not None and visitor is not None:
                pair = (visitor, user)
                self.aliases.pop(pair, None)
                self.aliases[pair] = None
            members = _members(key, row, member_of_click)
            if visitor is not None and (members or user is None):
                self.anonymous.add(visitor)
            self.of_row.append(known[0] if known else None)
            self.links.update(
                Link(person, member, row.product) for person in known for member in members
            )

    def resolve(self, aliases: Sequence[Pair]) -> None:
        """Record which users are behind anonymous ids; link these users with the ids' members.

        `aliases`: (anonymous id, user) pairs; must be ordered from least to most recently seen.
        """
        for visitor, user in aliases:
            self.users.setdefault(visitor, []).append(user)
        self.links.update(_inherited(self.links, aliases))

    def all(self) -> set[int]:
        """Return the persons of all rows; for anonymous ids, also the users linked to them."""
        return {
            each for person in self.of_row if person is not None for each in self.everyone(person)
        }

    def everyone(self, person: int) -> list[int]:
        """Return a person and, for an anonymous id, the users behind it."""
        return [person, *self.users.get(person, ())]


def _inherited(known: Iterable[Known], aliases: Iterable[Pair]) -> list[Known]:
    """Return the facts known about anonymous ids as facts about the users who have these ids."""
    of: dict[int, list[Known]] = {}
    for each in known:
        of.setdefault(each.person, []).append(each)
    return [each._replace(person=user) for visitor, user in aliases for each in of.get(visitor, ())]


def _members(
    key: PersonKey, row: EventRow, member_of_click: Callable[[str], int | None]
) -> list[int]:
    members = []
    if '"device_id"' in row.context:
        device = msgspec.json.decode(row.context).get("device_id")
        if is_member_id(device):
            members.append(key.member("ifa", device))
    if row.click_id is not None and (member := member_of_click(row.click_id)) is not None:
        members.append(member)
    return members


async def absorb(
    connection: asyncpg.Connection,
    key: PersonKey,
    rows: Sequence[EventRow],
    member_of_click: Callable[[str], int | None],
) -> None:
    """Update the facts about persons (counts, restrictions, links) from newly stored events.

    Call this last in the transaction that stores the events, since it takes a lock.
    """
    found = Persons(key, rows, member_of_click)
    definitions = await audiences.fetch_definitions(connection, {row.product for row in rows})
    new = await audiences.alias(connection, found.aliases) if found.aliases else []
    if found.anonymous:
        found.resolve(await audiences.fetch_aliases(connection, found.anonymous))
    counts = _counts(definitions, rows, found)
    restrictions = _restrictions(rows, found)
    if new:
        visitors = {visitor for visitor, _ in new}
        counts += _inherited(await audiences.fetch_counts(connection, visitors), new)
        found.links.update(_inherited(await audiences.fetch_links(connection, visitors), new))
    await audiences.count(connection, counts)
    await audiences.restrict(connection, restrictions)
    changed, lost = set[int](), set[int]()
    if found.links:
        changed, lost = await audiences.link(connection, found.links)
    await audiences.renew(connection, found.all())
    changed.update((each.person for each in counts), (each.person for each in restrictions))
    if changed:
        await audiences.refresh(connection, changed, lost)


async def exclude(
    connection: asyncpg.Connection,
    key: PersonKey,
    rows: Sequence[EventRow],
    member_of_click: Callable[[str], int | None],
) -> None:
    """Store only the restrictions that forgotten persons' events impose or lift.

    Members of a restricted person are linked with the person, so they are also restricted.
    """
    found = Persons(key, rows, member_of_click)
    restrictions = _restrictions(rows, found)
    await audiences.restrict(connection, restrictions)
    held = await audiences.fetch_restricted(connection, {link.person for link in found.links})
    links = [link for link in found.links if link.person in held]
    changed, lost = set[int](), set[int]()
    if links:
        changed, lost = await audiences.link(connection, links)
    changed.update(each.person for each in restrictions)
    if changed:
        await audiences.refresh(connection, changed, lost)


async def add(connection: asyncpg.Connection, audience: Audience, page: int = 1_000) -> bool:
    """Define an audience and count the stored events for it; return False if it is unchanged.

    The drain counts new events meanwhile, and waits for at most one page of stored ones. Former
    members of a replaced audience are removed at the end. If this is interrupted, the audience
    lacks members until the call is repeated.
    """
    async with audiences.changing(connection, audience.id):
        return await _add(connection, audience, page)


async def _add(connection: asyncpg.Connection, audience: Audience, page: int) -> bool:
    product = {audience.product}
    before = await audiences.fetch_product(connection, audience.id)
    async with connection.transaction():
        await events.hold_products(connection, product | ({before} if before else set()))
        number = await audiences.add(connection, audience)
        last = await audiences.fetch_last_arrival(connection)
    if number is None:
        return False
    await audiences.open_events(connection, audience, last)
    try:
        while rows := await audiences.fetch_events(connection, page):
            async with connection.transaction():
                await persons.hold_erasure(connection)
                await events.hold_products(connection, product)
                await _fill(connection, number, audience, rows)
    finally:
        await audiences.close_events(connection)
    listed = await audiences.fetch_members_of(connection, number)
    for some in audiences.pages(listed, page):
        async with connection.transaction():
            await events.hold_products(connection, product)
            await audiences.refresh(connection, (), some)
    await audiences.complete(connection, number)
    return True


async def remove(connection: asyncpg.Connection, id: str) -> bool:
    """Remove an audience; return whether there was one."""
    async with connection.transaction():
        product = await audiences.fetch_product(connection, id)
        if product is not None:
            await events.hold_products(connection, {product})
        return await audiences.remove(connection, id)


async def _fill(
    connection: asyncpg.Connection, number: int, audience: Audience, rows: Sequence[EventRow]
) -> None:
    """Count a page of events stored before the audience was defined, for this audience only."""
    suppression = await persons.fetch_suppression(connection)
    kept = [
        row
        for row in rows
        if not any(
            id and suppression.has_id(row.product, "user", id)
            for id in (row.client_user_id, row.anonymous_id)
        )
    ]
    found = Persons(PersonKey(suppression.key), kept)
    found.resolve(await audiences.fetch_aliases(connection, found.anonymous))
    definition = Definition(number, audience.product, audience.event, audience.min_amount_usd)
    counts = _counts([definition], kept, found)
    await audiences.count(connection, counts)
    await audiences.refresh(connection, {each.person for each in counts})


# -- what events say ------------------------------------------------------------------------------


def _counts(
    definitions: Iterable[Definition], rows: Sequence[EventRow], found: Persons
) -> list[Count]:
    by_event: dict[tuple[str, str], list[Definition]] = {}
    for definition in definitions:
        by_event.setdefault((definition.product, definition.event), []).append(definition)
    return [
        Count(each, definition.number, row.occurred_at)
        for row, person in zip(rows, found.of_row, strict=True)
        if person is not None
        for definition in by_event.get((row.product, row.event), ())
        if _is_large_enough(row, definition.min_amount_usd)
        for each in found.everyone(person)
    ]


def _is_large_enough(row: EventRow, min_micros: int | None) -> bool:
    if min_micros is None:
        return True
    amounts = msgspec.json.decode(row.enrichment).get("amounts") or {}
    usd = (amounts.get("amount") or {}).get("usd")
    return usd is not None and usd >= min_micros / MICROS


def _restrictions(rows: Sequence[EventRow], found: Persons) -> list[Restriction]:
    restrictions = []
    for row, person in zip(rows, found.of_row, strict=True):
        read = _RESTRICTING.get(row.event)
        field = read(msgspec.json.decode(row.context)) if read is not None else None
        if field is not None and person is not None:
            time = {field: min(row.occurred_at, row.received_at)}
            last = found.everyone(person)[-1]
            restrictions.append(Restriction(person=last, product=row.product, **time))
    return restrictions


def _blocked(context: dict[str, Any]) -> str | None:
    return "blocked_at" if context.get("block_reason") == SELF_EXCLUSION else None


def _unblocked(context: dict[str, Any]) -> str | None:
    reason = context.get("previous_block_reason")
    return "unblocked_at" if reason in (None, SELF_EXCLUSION) else None


def _consented(context: dict[str, Any]) -> str | None:
    return "accepted_at" if any(context.get(each) for each in CHANNELS) else "refused_at"


def _registered(context: dict[str, Any]) -> str | None:
    privacy = context.get("privacy")
    consent = privacy.get("marketing_consent") if isinstance(privacy, dict) else None
    return None if consent is None else "accepted_at" if consent else "refused_at"


_RESTRICTING: Final[dict[str, Callable[[dict[str, Any]], str | None]]] = {
    "account_blocked": _blocked,
    "account_unblocked": _unblocked,
    "marketing_consent_updated": _consented,
    "register": _registered,
}
