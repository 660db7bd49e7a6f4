"""Enrichment of an event: location, device, amounts in USD (document 3, test mode; contract 7).

Countries are alpha-2 codes, as in the stored `jurisdiction`; operating systems and browsers have
the names that campaigns target. Amounts are converted exactly, at the rate of the event's UTC day,
and rounded half-even to 6 decimals; without a rate `usd` is null, with the warning `rate_missing`.
"""

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, NamedTuple

from snapbid.base.days import utc_day
from snapbid.events.catalog import EVENTS
from snapbid.reference.agents import Agent
from snapbid.reference.geo import Place
from snapbid.reference.history import DailyRates

MICROS: Final = 1_000_000
MAX_VALUE_USD: Final = 1_000_000_000  # of one event, so that no sum of a transaction overflows

MONETARY: Final = {
    name: tuple(field for field in event.fields if field.monetary) for name, event in EVENTS.items()
}


class Enriched(NamedTuple):
    """The result of enriching an event.

    `document` is `{geo, user_agent, amounts}`; `warnings` are pairs of field and rule.
    """

    document: dict[str, Any]
    warnings: list[tuple[str, str]]


class Enricher(NamedTuple):
    """Enriches events, using sources for their location, device and exchange rates."""

    place_of: Callable[[str], Place | None]
    agent_of: Callable[[str], Agent]
    rates: DailyRates

    def enrich(self, event: dict[str, Any]) -> Enriched:
        """Derive location, device and amounts in USD from an event (`AcceptedEvent.document`).

        Each is null if the event has no data for it.
        """
        context = event["context"]
        warnings: list[tuple[str, str]] = []
        document = {
            "geo": _geo(context.get("ip_address"), self.place_of),
            "user_agent": _agent(context.get("user_agent"), self.agent_of),
            "amounts": _amounts(event, self.rates, warnings) or None,
        }
        return Enriched(document, warnings)


def _geo(ip: str | None, place_of: Callable[[str], Place | None]) -> dict[str, Any] | None:
    if ip is None:
        return None
    place = place_of(ip)
    return (place if place is not None else Place(None, None, None))._asdict()


def _agent(agent: Any, agent_of: Callable[[str], Agent]) -> dict[str, Any] | None:
    # Events without `user_agent` in the catalog may have one of any type, kept as received.
    return agent_of(agent)._asdict() if isinstance(agent, str) and agent else None


def _amounts(
    event: dict[str, Any], rates: DailyRates, warnings: list[tuple[str, str]]
) -> dict[str, dict[str, Any]]:
    context = event["context"]
    present = [field for field in MONETARY[event["event"]] if context.get(field.leaf) is not None]
    currency = context.get("currency")
    quote = None
    if present and currency is not None:
        crypto = context.get("is_crypto") is True
        quote = rates.quote(currency, utc_day(event["timestamp"] // 1000), crypto=crypto)
    rate = float(quote.usd) if quote is not None else None
    rate_date = quote.date.isoformat() if quote is not None else None
    amounts: dict[str, dict[str, Any]] = {}
    for field in present:
        value = context[field.leaf]
        usd = to_usd(value, quote.usd) if quote is not None else None
        if usd is None:
            warnings.append((field.path, "rate_missing"))
        amounts[field.leaf] = {
            "value": value,
            "currency": currency,
            "usd": usd,
            "rate": rate,
            "rate_date": rate_date,
        }
    return amounts


def to_usd(value: float, rate: Fraction) -> float | None:
    """Convert an amount, rounding half-even to 6 decimals; None on overflow.

    A float counts as its shortest decimal form: 0.1 is a tenth.
    """
    units, parts = Decimal(repr(value)).as_integer_ratio()
    micros = round(Fraction(units * rate.numerator * MICROS, parts * rate.denominator))
    try:
        usd = micros / MICROS
    except OverflowError:
        return None
    return usd if math.isfinite(usd) else None


def value_micros(event: dict[str, Any], enriched: dict[str, Any]) -> int | None:
    """Return what an event is worth as a conversion, in micro-USD (contract 12).

    Returns 0 for an event without a value, and None if there is no exchange rate, or if the value
    exceeds MAX_VALUE_USD (surely a mistake).
    """
    kind, amounts = EVENTS[event["event"]], enriched["amounts"]
    leaf = kind.value or kind.cost
    if not amounts or leaf not in amounts or (kind.free and event["context"].get(kind.free)):
        return 0
    usd = amounts[leaf]["usd"]
    if usd is None or abs(usd) > MAX_VALUE_USD:
        return None
    micros: int = round(usd * MICROS)
    return micros if kind.value else -micros
