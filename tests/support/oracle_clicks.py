"""For which click an event counts, plainly (contract 12): one event after the other, by names.

An event of nobody counts for the click that it names, and for no other.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import NamedTuple

DAY_MS = 86_400_000
NOBODYS = ("null", "11111111-1111-1111-1111-111111111111")
CLOCKS_MS = 3_600_000  # by which a partner's clock may differ
INVALID, EXPIRED, LATER = "click_invalid", "click_expired", "click_later"


class Issued(NamedTuple):
    """What a click id names, when it was clicked, and for how many days it counts."""

    campaign: str
    creative: str
    descriptor: str
    clicked_ms: int
    days: int = 30

    def counts_at(self, ms: int) -> bool:
        return ms <= self.clicked_ms + self.days * DAY_MS

    def precedes(self, event: "Happened") -> bool:
        return self.clicked_ms <= event.occurred_ms + CLOCKS_MS


class Happened(NamedTuple):
    """A stored event; `click_id` as it came."""

    product: str
    event: str
    occurred_ms: int
    received_ms: int
    user: str | None
    device: str | None
    click_id: str | None
    value_micros: int = 0


class Sum(NamedTuple):
    """A row of conversion_daily, without what is summed."""

    day: date
    campaign: str
    creative: str
    descriptor: str
    event: str


@dataclass
class Person:
    """The last click, and whether there was a deposit since."""

    click: Issued | None = None
    has_deposited: bool = False

    def at(self, ms: int) -> "Person":
        """The part that counts at that time."""
        return self if self.click is not None and self.click.counts_at(ms) else Person()


@dataclass
class Attributed:
    """`sums`: conversions, micro-USD and first deposits; `flags`: the flag of each event, or ""."""

    sums: dict[Sum, tuple[int, int, int]] = field(default_factory=dict)
    flags: list[str] = field(default_factory=list)
    last: dict[tuple[str, str, str], Person] = field(default_factory=dict)


def attribute(events: Iterable[Happened], issued: Mapping[str, Issued]) -> Attributed:
    """Events in the order in which they were stored; `issued`: our valid click ids."""
    made = Attributed()
    owner: dict[tuple[str, str], str] = {}  # of a device: the user seen there last
    for event in events:
        own, flag = None, ""
        if event.click_id in NOBODYS:
            event = event._replace(click_id=None)
        if event.click_id is not None:
            own = issued.get(event.click_id)
            if own is None:
                flag = INVALID
            elif not own.counts_at(event.received_ms):
                own, flag = None, EXPIRED
            elif not own.precedes(event):
                own, flag = None, LATER
        made.flags.append(flag)
        named, shown = (None if id in NOBODYS else id for id in (event.user, event.device))
        device = (event.product, "device", shown or "")
        if named is not None:
            who = (event.product, "user", named)
        elif shown is None:
            _add(made, event, own, is_first=False)
            continue
        elif (event.product, shown) in owner:
            who = (event.product, "user", owner[event.product, shown])
        else:
            who = device
        known = made.last.get(who, Person()).at(event.received_ms)
        if named is not None and shown is not None:
            owner[event.product, shown] = named
            known = _joined(known, made.last.pop(device, Person()).at(event.received_ms))
        _count(made, event, who, known, own)
    return made


def _joined(user: Person, device: Person) -> Person:
    if user.click is None or device.click is None:
        return user if device.click is None else device
    later = device if device.click.clicked_ms > user.click.clicked_ms else user
    return Person(later.click, user.has_deposited or device.has_deposited)


def _count(
    made: Attributed, event: Happened, who: tuple[str, str, str], known: Person, own: Issued | None
) -> None:
    person = made.last[who] = Person(known.click, known.has_deposited)
    if own is not None:
        click: Issued | None = own
        if known.click is None or own.clicked_ms >= known.click.clicked_ms:
            person.click = own
    elif event.click_id is None and known.click is not None:
        is_later = known.click.clicked_ms > event.received_ms or not known.click.precedes(event)
        click = None if is_later else known.click
    else:
        click = None
    is_first = click is not None and event.event == "deposit" and not person.has_deposited
    person.has_deposited |= is_first
    _add(made, event, click, is_first)


def _add(made: Attributed, event: Happened, click: Issued | None, is_first: bool) -> None:
    if click is None:
        return
    day = datetime.fromtimestamp(event.received_ms / 1000, UTC).date()
    key = Sum(day, click.campaign, click.creative, click.descriptor, event.event)
    conversions, value, firsts = made.sums.get(key, (0, 0, 0))
    made.sums[key] = (conversions + 1, value + event.value_micros, firsts + is_first)
