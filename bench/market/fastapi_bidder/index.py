"""Campaigns in bit sets: bit n of an integer stands for the n-th campaign, the dearest first.

A value of a dimension has the set of the campaigns that take it, so that a request's candidates are
some twenty conjunctions, and the best of them is the lowest bit.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from snapbid.campaigns.campaign import Campaign

Value = str | int


class Dimension:
    """Which campaigns take a value of one targeting dimension."""

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
        """The campaigns that take the request's only value, or its absence."""
        return self._taking.get(value, self.open) if value is not None else self.open

    def any(self, values: Iterable[Value]) -> int:
        """The campaigns that take the request's values together."""
        included, excluded = self.open, 0
        for value in values:
            included |= self._includes.get(value, 0)
            excluded |= self._excludes.get(value, 0)
        return included & ~excluded


class Attribute:
    """The campaigns that have a value."""

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
    """The active campaigns of a list. Raises ValueError for budgets and frequency caps."""

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
        """The campaigns whose price is at least that."""
        return (1 << bisect_right(self._prices, -floor_micros)) - 1


def places(found: int) -> Iterator[int]:
    """The numbers of a set, ascending."""
    while found:
        lowest = found & -found
        yield lowest.bit_length() - 1
        found ^= lowest


def parents(domain: str) -> list[str]:
    """A domain and those above it."""
    labels = domain.split(".")
    return [".".join(labels[start:]) for start in range(len(labels))]


def _with_parents(categories: Iterable[str]) -> list[str]:
    return [name for one in categories for name in (one, one.partition("-")[0])]
