"""Necessary conditions for a bid, reduced to those that an SSP can check on its requests.

An impression that no clause admits never gets a bid. Conditions that an SSP cannot
check (segments, budgets) or should not learn (publishers, domains) are left out: a clause may be
too wide, but never too narrow.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from snapbid.campaigns.campaign import Campaign, Creative, Values

AHEAD_MS: Final = 7_200_000  # rules are valid for an hour, and may wait to be fetched
MOST: Final = 20_000  # clauses; more are merged into wider ones
MOST_COMPARED: Final = 2_000  # clauses of one media type and size
_STEPS: Final = (100, 125, 160, 200, 250, 320, 400, 500, 640, 800)  # hundredths


Entries: TypeAlias = frozenset[str | int]


class Clause(NamedTuple):
    """Conditions on an impression; None admits any value.

    `size` (of banners) is `WxH`. The request must have one of the `inventories` (site, app, dooh),
    come from one of the `countries` (alpha-3) and one of the `devices` (`device.devicetype`). The
    impression must offer one of the `deals`, which have their own floors.
    """

    media: str
    size: str | None
    inventories: Entries | None
    countries: Entries | None
    devices: Entries | None
    deals: Entries | None

    def covers(self, other: "Clause") -> bool:
        """Return whether this clause admits everything that another clause admits."""
        return (
            self.media == other.media
            and self.size in (None, other.size)
            and all(
                mine is None or (theirs is not None and mine >= theirs)
                for mine, theirs in zip(self[2:], other[2:], strict=True)
            )
        )


Clauses: TypeAlias = dict[Clause, int]
"""The highest floor admitted by each clause, in micro-USD."""


def admits(campaign: Campaign, descriptors: Mapping[str, str]) -> bool:
    """Return whether a campaign may bid on requests to any of these descriptors.

    `descriptors` maps descriptors to canonical ids.
    """
    values = campaign.targeting.get("ssp")
    return any(_admits(values, {name, id}) for name, id in descriptors.items())


def clauses_of(campaign: Campaign, now_ms: int) -> Iterator[tuple[Clause, int]]:
    """Yield a clause for each creative of a campaign, with the highest floor that it admits.

    The highest floor is the campaign's price, rounded up by `ceiling`. Yields nothing for a
    campaign that cannot bid now or soon.
    """
    if campaign.status != "active" or not _runs(campaign, now_ms):
        return
    targeting = campaign.targeting
    countries = _countries(targeting)
    if countries is not None and not countries:
        return
    highest = ceiling(campaign.cpm_micros)
    for creative in campaign.creatives:
        clause = Clause(
            creative.media,
            _size(creative),
            _inventories(targeting),
            countries,
            _included(targeting, "device_type"),
            _included(targeting, "deal"),
        )
        yield clause, highest


def reduced(clauses: Iterable[tuple[Clause, int]]) -> Clauses:
    """Merge clauses into wider ones while there are too many; drop those that others cover."""
    highest: Clauses = {}
    for clause, micros in clauses:
        highest[clause] = max(highest.get(clause, 0), micros)
    for field in ("devices", "countries", "deals", "inventories"):
        if len(highest) > MOST:
            highest = _merged(highest, field)
    by_kind: dict[tuple[str, str | None], list[tuple[Clause, int]]] = {}
    for clause, micros in highest.items():
        by_kind.setdefault(clause[:2], []).append((clause, micros))
    return dict(kept for alike in by_kind.values() for kept in _uncovered(alike))


def _merged(clauses: Clauses, field: str) -> Clauses:
    """Merge clauses that differ only in `field`; a merged clause admits any value of that field.

    If that field is `deals`, it admits the union of their deals instead: a clause that admits any
    deal would compare prices with the floors of impressions, not with those of deals.
    """
    any_value: dict[str, Any] = {field: None}
    highest: Clauses = {}
    deals: defaultdict[Clause, Entries] = defaultdict(frozenset)
    for clause, micros in clauses.items():
        if field == "deals" and clause.deals is not None:
            merged = clause._replace(deals=frozenset())
            deals[merged] |= clause.deals
        else:
            merged = clause._replace(**any_value)
        highest[merged] = max(highest.get(merged, 0), micros)
    return {
        clause._replace(deals=deals.get(clause, clause.deals)): micros
        for clause, micros in highest.items()
    }


def ceiling(micros: int) -> int:
    """Round a price up to one of ten steps per decade, so that no exact price is disclosed."""
    power = 1
    while True:
        for step in _STEPS:
            if step * power >= 100 * micros:
                return -(-step * power // 100)
        power *= 10


def _uncovered(alike: list[tuple[Clause, int]]) -> list[tuple[Clause, int]]:
    if len(alike) > MOST_COMPARED:
        return alike
    widest_first = sorted(alike, key=lambda each: _width(each[0]), reverse=True)
    kept: list[tuple[Clause, int]] = []
    for clause, micros in widest_first:
        # Deals have their own floors, so only a clause with the same deals covers another.
        if not any(
            other.covers(clause) and highest >= micros and clause.deals == other.deals
            for other, highest in kept
        ):
            kept.append((clause, micros))
    return kept


def _width(clause: Clause) -> tuple[int, int]:
    values = clause[2:]
    return sum(each is None for each in values), sum(len(each) for each in values if each)


def _runs(campaign: Campaign, now_ms: int) -> bool:
    starts, ends = campaign.starts_at_ms, campaign.ends_at_ms
    return (starts is None or starts <= now_ms + AHEAD_MS) and (ends is None or ends > now_ms)


def _admits(values: Values | None, of_request: set[str]) -> bool:
    if values is None:
        return True
    if values.include and not of_request & set(values.include):
        return False
    return not of_request & set(values.exclude)


def _included(targeting: Mapping[str, Values], dimension: str) -> Entries | None:
    values = targeting.get(dimension)
    return frozenset(values.include) if values is not None and values.include else None


def _inventories(targeting: Mapping[str, Values]) -> Entries | None:
    """Return the inventories of which a request must have at least one; None if any will do.

    Only one dimension is used: sets from several dimensions cannot be intersected, since a request
    may have several inventories.
    """
    named = _included(targeting, "inventory")
    if named is not None:
        return named
    if _included(targeting, "domain"):
        return frozenset({"site"})
    if _included(targeting, "bundle"):
        return frozenset({"app"})
    return frozenset({"site", "app"}) if _included(targeting, "category") else None


def _countries(targeting: Mapping[str, Values]) -> Entries | None:
    """Return the countries that targeting by country and region admits; None if it admits all."""
    countries, regions = _included(targeting, "country"), _included(targeting, "region")
    if regions is None:
        return countries
    of_regions = frozenset(str(region)[:3].upper() for region in regions)
    return of_regions if countries is None else countries & of_regions


def _size(creative: Creative) -> str | None:
    return f"{creative.w}x{creative.h}" if creative.media == "banner" else None
