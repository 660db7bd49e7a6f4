"""Attribution: which events count for which click (contract 12).

An event with one of our click ids counts for that click if it is accepted within the campaign's
number of days after the click. Otherwise it is flagged: `click_expired` if it is accepted later,
`click_later` if it happened before the click, and `click_invalid` if the id is not one of ours or
its campaign advertises a different product. So a partner's events never count for another's
campaign. An event without a click id, or with a placeholder such as `null`, counts for its person's
last click before it. The person is the `client_user_id`, or the `anonymous_id` until an event has
both: from then on the anonymous id, and its click, belong to the user. A placeholder identifies no
person: without another id, an event counts only for a click that it names.

The drain counts new events in the transaction that stores them, with their products locked. So each
event counts once, and a drain that stores a person's next event sees the last click, even if
another drain stored it. Test mode previews what an event would count for (`preview`).
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import asyncpg

from snapbid.campaigns.click_id import Click, read
from snapbid.campaigns.persons import PersonKey, is_placeholder
from snapbid.events.outcomes import AcceptedEvent
from snapbid.events.rulebook import AHEAD_MS
from snapbid.warehouse import audiences, conversions, events, persons
from snapbid.warehouse.conversions import ClickLink, ConversionKey, ConversionSum
from snapbid.warehouse.events import EventRow

INVALID: Final = "click_invalid"
EXPIRED: Final = "click_expired"
LATER: Final = "click_later"
CLOCKS: Final = timedelta(milliseconds=AHEAD_MS)  # how far a partner's clock may differ from ours
DEPOSIT: Final = "deposit"

Ids = tuple[int | None, int | None]
"""The hashes of an event's user and of its anonymous user."""


class Conversion(NamedTuple):
    """The key of the sum to which an event contributes, and the amounts that it adds."""

    key: ConversionKey
    added: ConversionSum


class Counting(NamedTuple):
    """The conversion that an event counts as, if any, and the flag for its click id."""

    flag: str = ""
    conversion: Conversion | None = None


class Clicks(NamedTuple):
    """Valid click ids: `links` maps them to their clicks, `members` to the member who clicked."""

    links: Mapping[str, ClickLink]
    members: Mapping[str, int]

    def of(self, row: EventRow) -> ClickLink | None:
        """Return the click that a row's click id names.

        Return None for a row without a click id, and for a row with a flag.
        """
        return None if row.flags or (named := _named(row)) is None else self.links[named]


class Issued(NamedTuple):
    """The click named by a click id, and the product whose events may count for it (None: any)."""

    link: ClickLink
    product: str | None


async def read_clicks(
    connection: asyncpg.Connection, rows: Sequence[EventRow]
) -> tuple[list[EventRow], Clicks]:
    """Flag rows whose click ids do not count; return all rows, and the clicks of the valid ids."""
    texts = {named for row in rows if (named := _named(row)) is not None}
    if not texts:
        return list(rows), Clicks({}, {})
    keys = await conversions.fetch_keys(connection)
    clicks = {text: click for text in texts if (click := read(text, keys)) is not None}
    links = await _links(connection, clicks) if clicks else {}
    flagged = [row._replace(flags=flag) if (flag := _flag(row, links)) else row for row in rows]
    members = {text: click.person for text, click in clicks.items() if click.person}
    return flagged, Clicks({text: issued.link for text, issued in links.items()}, members)


async def _links(connection: asyncpg.Connection, clicks: Mapping[str, Click]) -> dict[str, Issued]:
    bought = await conversions.fetch_bought(connection, list(clicks.values()))
    links = {}
    for (text, click), of in zip(clicks.items(), bought, strict=True):
        clicked_at = datetime.fromtimestamp(click.time_s, UTC)
        expires_at = clicked_at + timedelta(days=of.days)
        link = ClickLink(clicked_at, expires_at, of.campaign, of.creative, of.descriptor)
        links[text] = Issued(link, of.product)
    return links


def _named(row: EventRow) -> str | None:
    """Return a row's click id; None if that is missing or a placeholder."""
    return None if row.click_id is None or is_placeholder(row.click_id) else row.click_id


def _flag(row: EventRow, links: Mapping[str, Issued]) -> str:
    if (named := _named(row)) is None:
        return ""
    issued = links.get(named)
    if issued is None or issued.product not in (None, row.product):
        return INVALID
    if row.received_at > issued.link.expires_at:
        return EXPIRED
    return LATER if issued.link.clicked_at > row.occurred_at + CLOCKS else ""


async def count(
    connection: asyncpg.Connection, key: PersonKey, new: Sequence[EventRow], clicks: Clicks
) -> list[EventRow]:
    """Count new events in order, and store the last click of each person.

    Returns the rows, each with the campaign that it counts for, if any.
    """
    ids = _ids(key, new)
    attribution = await _begin(connection, ids)
    before = dict(attribution.last)
    counted = [
        _counting(row, attribution.count(row, clicks.of(row), *of_row))
        for row, of_row in zip(new, ids, strict=True)
    ]
    changed = {
        person: link for person, link in attribution.last.items() if link != before.get(person)
    }
    if changed:
        await conversions.set_links(connection, changed)
    if attribution.sums:
        await conversions.count(connection, attribution.sums)
    return counted


def _counting(row: EventRow, conversion: Conversion | None) -> EventRow:
    if conversion is None:
        return row
    of, is_first = conversion.key, bool(conversion.added.first_deposits)
    return row._replace(
        campaign=of.campaign,
        creative=of.creative,
        descriptor=of.descriptor,
        first_deposit=is_first,
    )


async def preview(connection: asyncpg.Connection, rows: Sequence[EventRow]) -> list[Counting]:
    """Return what each event would count for, in order; a repeated event counts for nothing."""
    key = await persons.fetch_key(connection)
    flagged, clicks = await read_clicks(connection, rows)
    ids = _ids(key, flagged)
    attribution = await _begin(connection, ids)
    known = await events.fetch_known(connection, {row.event_id for row in flagged})
    countings = []
    for row, of_row in zip(flagged, ids, strict=True):
        is_new = row.event_id not in known
        known.add(row.event_id)
        counted = attribution.count(row, clicks.of(row), *of_row) if is_new else None
        countings.append(Counting(row.flags, counted))
    return countings


def row_of(
    event: AcceptedEvent, product: str, received_at_ms: int, value_micros: int | None
) -> EventRow:
    """Build the row of an event that will not be stored, to preview what it would count for."""
    occurred_at, received_at = (
        datetime.fromtimestamp(ms / 1000, UTC) for ms in (event.occurred_at_ms, received_at_ms)
    )
    ids = event.client_user_id, event.anonymous_id, event.click_id
    return EventRow(
        event.event_id, product, event.event, occurred_at, received_at, *ids, "{}", "{}", b"", None,
        value_micros=value_micros,
    )  # fmt: skip


def _ids(key: PersonKey, rows: Sequence[EventRow]) -> list[Ids]:
    return [key.of_event(row.product, row.client_user_id, row.anonymous_id) for row in rows]


async def _begin(connection: asyncpg.Connection, ids: Sequence[Ids]) -> "Attribution":
    """Build an attribution with the last clicks of the persons with these ids."""
    visitors = {visitor for _, visitor in ids if visitor is not None}
    alone = any(user is None and visitor is not None for user, visitor in ids)
    users = dict(await audiences.fetch_aliases(connection, visitors)) if alone else {}
    known = visitors | set(users.values()) | {user for user, _ in ids if user is not None}
    last = await conversions.fetch_links(connection, known) if known else {}
    return Attribution(last, users)


class Attribution:
    """Counts events one by one.

    `last`: each person's last click; `sums`: the counts so far; `users`: the user behind each
    anonymous id, if known.
    """

    def __init__(self, last: Mapping[int, ClickLink], users: Mapping[int, int]) -> None:
        self.last: dict[int, ClickLink | None] = dict(last)
        self.sums: dict[ConversionKey, ConversionSum] = {}
        self._users = dict(users)

    def count(
        self, row: EventRow, own: ClickLink | None, user: int | None, visitor: int | None
    ) -> Conversion | None:
        """Count an event; return its conversion, if any.

        `own`: the click that the event names; `user`, `visitor`: the hashes of its user and of its
        anonymous user.
        """
        person = self._person(row, user, visitor)
        if person is None:
            return None if own is None else self._add(row, own, None)
        before = self._valid(person, row)
        if own is not None:
            is_later = before is None or own.clicked_at >= before.clicked_at
            latest = own._replace(has_deposited=before is not None and before.has_deposited)
            if is_later:
                self.last[person] = latest
            return self._add(row, own, person)
        if _named(row) is not None or before is None:
            return None
        is_later = before.clicked_at > min(row.received_at, row.occurred_at + CLOCKS)
        return None if is_later else self._add(row, before, person)

    def _person(self, row: EventRow, user: int | None, visitor: int | None) -> int | None:
        """Return an event's user, or else its anonymous user; None if it has neither.

        If it has both, the anonymous user's last click passes to the user.
        """
        if visitor is None:
            return user
        if user is None:
            return self._users.get(visitor, visitor)
        self._users[visitor] = user
        taken = self._valid(visitor, row)
        if self.last.get(visitor) is not None:
            self.last[visitor] = None
        if taken is not None:
            own = self._valid(user, row)
            latest = taken if own is None or own.clicked_at < taken.clicked_at else own
            has_deposited = taken.has_deposited or (own is not None and own.has_deposited)
            self.last[user] = latest._replace(has_deposited=has_deposited)
        return user

    def _valid(self, person: int, row: EventRow) -> ClickLink | None:
        """Return a person's last click if it was still valid when the event was received.

        Returns None if the click had expired, or if there is none.
        """
        link = self.last.get(person)
        return None if link is None or row.received_at > link.expires_at else link

    def _add(self, row: EventRow, link: ClickLink, person: int | None) -> Conversion:
        """Count an event for its click and return what it adds; record a person's first deposit."""
        is_first = False
        noted = None if person is None else self.last.get(person)
        if row.event == DEPOSIT and person is not None and noted is not None:
            is_first = not noted.has_deposited
            self.last[person] = noted._replace(has_deposited=True)
        day = row.received_at.astimezone(UTC).date()
        key = ConversionKey(day, link.campaign, link.creative, link.descriptor, row.event)
        value, is_unvalued = row.value_micros or 0, row.value_micros is None
        added = ConversionSum(1, value, int(is_first), int(is_unvalued))
        before = self.sums.get(key, ConversionSum())
        self.sums[key] = ConversionSum(*map(sum, zip(before, added, strict=True)))
        return Conversion(key, added)
