"""Attribution: which events count for which click, in the transaction that stores them.

Contract 12: an event with a click id of ours counts for its click, if it is accepted within the
campaign's window of days after it; it is flagged `click_expired` if it is not, and `click_invalid`
if the id is none of ours. An event without a click id counts for its person's last click before it.
The person is the `client_user_id`, or the `anonymous_id` until an event has both: then the click of
the latter becomes that of the former.

Only new events are looked at, and their products are locked. So each event counts once, and the
drain that stores a person's next event sees the last click that another has stored.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import asyncpg

from snapbid.campaigns.click_id import Click, read
from snapbid.warehouse import conversions
from snapbid.warehouse.conversions import (
    ClickLink,
    ConversionKey,
    ConversionSum,
    Person,
    anonymous,
    client,
)
from snapbid.warehouse.events import EventRow

INVALID: Final = "click_invalid"
EXPIRED: Final = "click_expired"
DEPOSIT: Final = "deposit"


async def read_clicks(
    connection: asyncpg.Connection, rows: Sequence[EventRow]
) -> tuple[list[EventRow], dict[str, ClickLink]]:
    """Return the rows with the flags of their click ids, and the clicks that count, by event id."""
    texts = {row.click_id for row in rows if row.click_id is not None}
    if not texts:
        return list(rows), {}
    keys = await conversions.fetch_keys(connection)
    clicks = {text: click for text in texts if (click := read(text, keys)) is not None}
    links = await _links(connection, clicks)
    flagged: list[EventRow] = []
    counting: dict[str, ClickLink] = {}
    for row in rows:
        if row.click_id is not None:
            link = links.get(row.click_id)
            if link is None:
                row = row._replace(flags=INVALID)
            elif row.received_at > link.expires_at:
                row = row._replace(flags=EXPIRED)
            else:
                counting.setdefault(row.event_id, link)
        flagged.append(row)
    return flagged, counting


async def _links(
    connection: asyncpg.Connection, clicks: Mapping[str, Click]
) -> dict[str, ClickLink]:
    """Return the link that each click id makes."""
    if not clicks:
        return {}
    bought = await conversions.fetch_bought(connection, list(clicks.values()))
    links = {}
    for (text, click), of in zip(clicks.items(), bought, strict=True):
        clicked_at = datetime.fromtimestamp(click.time_s, UTC)
        expires_at = clicked_at + timedelta(days=of.days)
        links[text] = ClickLink(clicked_at, expires_at, of.campaign, of.creative, of.descriptor)
    return links


async def count(
    connection: asyncpg.Connection,
    new: Iterable[EventRow],
    clicks: Mapping[str, ClickLink],
    key: bytes,
) -> None:
    """Count new events, in their order, and store the last clicks of their persons.

    `clicks`: those of `read_clicks`; `key`: of the suppression.
    """
    known = [(row, _persons(row, key)) for row in new]
    everybody = {person for _, persons in known for person in persons}
    before = await conversions.fetch_links(connection, everybody) if everybody else {}
    last: dict[Person, ClickLink | None] = dict(before)
    sums: dict[ConversionKey, ConversionSum] = {}
    for row, persons in known:
        link = _click_of(row, persons, clicks.get(row.event_id), last)
        if link is not None:
            _add(sums, row, link, persons, last)
    changed = {person: link for person, link in last.items() if link != before.get(person)}
    if changed:
        await conversions.set_links(connection, changed)
    if sums:
        await conversions.count(connection, sums)


def _persons(row: EventRow, key: bytes) -> list[Person]:
    """Return the person of an event first, and then one who turns out to be the same."""
    persons = []
    if row.client_user_id is not None:
        persons.append(client(key, row.product, row.client_user_id))
    if row.anonymous_id is not None:
        persons.append(anonymous(key, row.product, row.anonymous_id))
    return persons


def _click_of(
    row: EventRow,
    persons: Sequence[Person],
    own: ClickLink | None,
    last: dict[Person, ClickLink | None],
) -> ClickLink | None:
    """Return the click for which an event counts, and note the last click of its person."""
    known = [
        link
        for person in persons
        if (link := last.get(person)) is not None and row.received_at <= link.expires_at
    ]
    for same in persons[1:]:
        if last.get(same) is not None:
            last[same] = None
    candidates = known if own is None else [*known, own]
    if not candidates:
        return None
    latest = max(candidates, key=lambda link: link.clicked_at)
    if persons:
        has_deposited = any(link.has_deposited for link in known)
        last[persons[0]] = latest._replace(has_deposited=has_deposited)
    if row.click_id is not None:
        return own
    return latest if latest.clicked_at <= row.received_at else None


def _add(
    sums: dict[ConversionKey, ConversionSum],
    row: EventRow,
    link: ClickLink,
    persons: Sequence[Person],
    last: dict[Person, ClickLink | None],
) -> None:
    """Add an event to the sums of its click; the first deposit of a person counts as such."""
    day = row.received_at.astimezone(UTC).date()
    key = ConversionKey(day, link.campaign, link.creative, link.descriptor, row.event)
    is_first = False
    if row.event == DEPOSIT and persons:
        noted = last[persons[0]]
        assert noted is not None
        is_first = not noted.has_deposited
        last[persons[0]] = noted._replace(has_deposited=True)
    before = sums.get(key, ConversionSum())
    sums[key] = ConversionSum(
        before.conversions + 1,
        before.value_micros + row.value_micros,
        before.first_deposits + is_first,
    )
