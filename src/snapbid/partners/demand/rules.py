"""Renders clauses as plain JSON rules with which an SSP can filter its requests.

A request may be dropped if all its impressions may be dropped; an impression may be dropped if no
entry of `accept` takes it. An entry for native takes only impressions that ask for assets, and an
entry with `max_floor` takes only impressions whose floor has an exchange rate. A value in a form
other than OpenRTB's (a number as text, a country that is not an upper-case alpha-3 code) counts as
a match for every entry, because the bidder may understand it.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

import msgspec

from snapbid.partners.demand.clauses import Clauses

MICROS: Final = 1_000_000
VALID_FOR_S: Final = 3600


class Accepted(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Conditions under which an impression could be bid on; an empty list admits any value.

    The banner, or one of its formats, must have one of the `sizes`. The request must have one of
    the `inventories` (site, app, dooh), one of the `countries` and one of the `device_types`
    (`device.devicetype`). The impression must offer one of the `deals`, which have their own
    floors, or else have a `bidfloor` of at most `max_floor` (USD).
    """

    media: str
    sizes: tuple[str, ...] = ()
    inventories: tuple[str, ...] = ()
    countries: tuple[str, ...] = ()
    device_types: tuple[int, ...] = ()
    deals: tuple[str, ...] = ()
    max_floor: float | None = None


class DemandRules(msgspec.Struct, frozen=True, rename="camel"):
    """Rules that describe the requests of an SSP that could be bid on.

    `accept`: conditions, at least one of which an impression must meet. `valid_for_s`: how long the
    rules apply after they are read. `currencies`: USD per unit of each currency. A request whose
    `cur` names none of these currencies could not be bid on, even if its impressions meet a
    condition.
    """

    ssp: str
    valid_for_s: int
    currencies: dict[str, float]
    accept: tuple[Accepted, ...]


def rules_of(ssp: str, clauses: Clauses, usd: Mapping[str, Fraction]) -> DemandRules:
    """Return the rules of a canonical id; equal clauses give equal rules.

    `usd`: USD per unit of each currency.
    """
    sizes: dict[tuple[Any, ...], list[str]] = {}
    for clause, micros in clauses.items():
        alike = (clause.media, *map(_sorted, clause[2:]), None if clause.deals else micros)
        sizes.setdefault(alike, []).extend([clause.size] if clause.size else [])
    accept = [
        Accepted(
            media,
            tuple(sorted(set(of_media))),
            inventories,
            countries,
            devices,
            deals,
            None if micros is None else micros / MICROS,
        )
        for (media, inventories, countries, devices, deals, micros), of_media in sizes.items()
    ]
    accept.sort(key=msgspec.json.encode)
    rates = {currency: float(rate) for currency, rate in sorted(usd.items())}
    return DemandRules(ssp, VALID_FOR_S, rates, tuple(accept))


def _sorted(values: frozenset[Any] | None) -> tuple[Any, ...]:
    return tuple(sorted(values)) if values else ()
