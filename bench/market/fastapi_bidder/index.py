"""Campaigns in bit sets: bit n of an integer is the n-th campaign in descending order of price.

Each value of a dimension has the set of campaigns that accept it. A request's candidates are the
intersection of some twenty such sets, and the best candidate is the lowest bit.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from snapbid.campaigns.campaign import Campaign

Value = str | int


class Dimension:
    """The sets of campaigns that accept each value of one targeting dimension."""

    def __init__(self, name: str, campaigns: Sequence[Campaign]) -> None:
        everyone = (1 << len(campaigns)) - 1
        includes: defaultdict[Value, int] = defaultdict(int)
        excludes: defaultdict[Value, int] = defaultdict(int)
        choosy = 0
        for place, campaign in enumerate(campaigns):
            values = campaign.targeting.get(name)
            if values is not None:
                choosy |= (1 << place) if values.include else 0
                for value in values.include:
                    includes[value] |= 1 << place
                for value in values.exclude:
                    excludes[value] |= 1 << place
        self.open = everyone & ~choosy
        self._includes, self._excludes = dict(includes), dict(excludes)
        self._taking = {
            value: (self.open | includes[value]) & ~excludes[value]
            for value in {*self._includes, *self._excludes}
        }

    def one(self, value: Value | None) -> int:
        """Return the campaigns that accept the request's only value, or its absence."""
        return self._taking.get(value, self.open) if value is not None else self.open

    def any(self, values: Iterable[Value]) -> int:
        """Return the campaigns that accept the request's values together."""
        included, excluded = self.open, 0
        for value in values:
            included |= self._includes.get(value, 0)
            excluded |= self._excludes.get(value, 0)
        return included & ~excluded


class Attribute:
    """The sets of campaigns that have each value of an attribute."""

    def __init__(self, values: Iterable[Iterable[Value | None]]) -> None:
        self._having: defaultdict[Value | None, int] = defaultdict(int)
        for place, own in enumerate(values):
            for value in set(own):
                self._having[value] |= 1 << place

    def any(self, values: Iterable[Value | None]) -> int:
        found = 0
        for value in values:
            found |= self._having.get(value, 0)
        return found


class Index:
    """An index of the active campaigns. Raises ValueError for budgets and frequency caps."""

    DIMENSIONS = (
        "ssp", "country", "region", "city", "postal", "device_type", "connection", "os", "browser",
        "carrier", "language", "inventory", "domain", "bundle", "publisher", "category", "segment",
        "deal", "position", "hour",
    )  # fmt: skip

    def __init__(self, campaigns: Iterable[Campaign]) -> None:
        active = [one for one in campaigns if one.status == "active"]
        self.campaigns = sorted(active, key=lambda one: -one.cpm_micros)
        for one in self.campaigns:
            if one.frequency_caps or one.budget.daily_micros or one.budget.total_micros:
                raise ValueError(f"{one.id}: no budgets and frequency caps here")
        own = self.campaigns
        self._prices = [-one.cpm_micros for one in own]
        self.dimensions = {name: Dimension(name, own) for name in self.DIMENSIONS}
        self.everyone = (1 << len(own)) - 1
        self.located = sum(1 << place for place, one in enumerate(own) if one.geo_radius)
        self.dealing = self.everyone & ~self.dimensions["deal"].open
        self.seats = Attribute([one.seat] for one in own)
        self.bundles = Attribute([one.bundle] for one in own)
        self.categories = Attribute(_with_parents(one.categories) for one in own)
        self.domains = Attribute(parents(one.advertiser) for one in own)
        self.media = Attribute((each.media for each in one.creatives) for one in own)
        self.sizes = Attribute(
            ((each.w << 16) + each.h for each in one.creatives if each.media == "banner")
            for one in own
        )

    def paying(self, floor_micros: int) -> int:
        """Return the campaigns whose price is at least the floor."""
        return (1 << bisect_right(self._prices, -floor_micros)) - 1


def places(found: int) -> Iterator[int]:
    """Yield the numbers in a set in ascending order."""
    while found:
        lowest = found & -found
        yield lowest.bit_length() - 1
        found ^= lowest


def parents(domain: str) -> list[str]:
    """Return a domain and its parent domains."""
    labels = domain.split(".")
    return [".".join(labels[start:]) for start in range(len(labels))]


def _with_parents(categories: Iterable[str]) -> list[str]:
    return [name for one in categories for name in (one, one.partition("-")[0])]
