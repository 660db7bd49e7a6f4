"""Matchers that a Python user might write: a plain scan, numpy bitsets, roaring bitmaps.

All three find candidates by targeting dimensions and formats, highest price first, and ask the
product (`Query.explain`) about the other limits of each.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Final, Protocol

import numpy as np
from pyroaring import BitMap

from snapbid.bidding.request import Imp
from snapbid.campaigns.campaign import Campaign
from snapbid.campaigns.document import parse
from snapbid.catalog._builder import DIMENSIONS, MEDIA
from snapbid.catalog._index import FORMAT_DIMENSION, Query
from workload.campaigns import documents

Value = str | int | tuple[int, ...]
Values = dict[int, list[Any]]
Row = Any  # of numpy
BITS: Final = np.uint64(1) << np.arange(64, dtype=np.uint64)


class Scan(Protocol):
    """A way to find candidates.

    `values` are the request's values by dimension; `end` is the first rank with a price below the
    floor.
    """

    def candidates(self, values: Values, end: int) -> Iterator[int]: ...


def best(scan: Scan, values: Values, end: int, query: Query) -> int | None:
    """Return the rank of the highest-priced campaign that may bid, if any."""
    return next((rank for rank in scan.candidates(values, end) if not query.explain(rank)[0]), None)


def in_order(count: int, shape: str) -> list[Campaign]:
    """Return the generated campaigns in the order of their ranks."""
    made = [parse(document) for document in documents(count, shape=shape)]
    return sorted(made, key=lambda campaign: (-campaign.cpm_micros, campaign.id))


def entries(campaign: Campaign) -> Iterator[tuple[int, set[Value], set[Value]]]:
    """Yield a campaign's (dimension, include, exclude), with creatives' formats as a dimension."""
    for name, lists in campaign.targeting.items():
        yield DIMENSIONS[name], set(lists.include), set(lists.exclude)
    formats: Iterable[Value] = (
        (
            MEDIA[creative.media],
            *((creative.w or 0, creative.h or 0) if creative.media == "banner" else ()),
        )
        for creative in campaign.creatives
    )
    yield FORMAT_DIMENSION, set(formats), set()


def carried(query: Query, imp: Imp) -> Values:
    """Return a request's values by dimension, with the impression's formats as one dimension."""
    values: Values = dict(query.carried())
    formats: list[Value] = []
    if imp.banner is not None:
        sizes = {(size.w, size.h) for size in (imp.banner, *(imp.banner.format or ()))}
        formats += [(MEDIA["banner"], w, h) for w, h in sizes if w and h]
    formats += [(MEDIA[name],) for name in ("video", "audio", "native") if getattr(imp, name)]
    return {**values, FORMAT_DIMENSION: formats}


def end_of(prices: list[int], floor: int) -> int:
    """Return the first rank whose price is below the floor; `prices` are in descending order."""
    return bisect_right(prices, -floor, key=lambda price: -price)


class Plain:
    """A scan that checks one campaign after another."""

    def __init__(self, ranked: list[Campaign]) -> None:
        self._entries = [list(entries(campaign)) for campaign in ranked]

    def candidates(self, values: Values, end: int) -> Iterator[int]:
        for rank, lists in enumerate(self._entries[:end]):
            for dimension, include, exclude in lists:
                has = values.get(dimension, ())
                if (include and include.isdisjoint(has)) or not exclude.isdisjoint(has):
                    break
            else:
                yield rank


class _Postings:
    """Ranks by dimension and value; `open`: those without an include for a dimension."""

    def __init__(self, ranked: list[Campaign]) -> None:
        closed: defaultdict[int, list[int]] = defaultdict(list)
        self.include: defaultdict[tuple[int, Value], list[int]] = defaultdict(list)
        self.exclude: defaultdict[tuple[int, Value], list[int]] = defaultdict(list)
        for rank, campaign in enumerate(ranked):
            for dimension, include, exclude in entries(campaign):
                if include:
                    closed[dimension].append(rank)
                for value in include:
                    self.include[dimension, value].append(rank)
                for value in exclude:
                    self.exclude[dimension, value].append(rank)
        everyone = range(len(ranked))
        dimensions = {dimension for dimension, _ in (*self.include, *self.exclude)}
        self.open = {each: sorted({*everyone} - {*closed[each]}) for each in dimensions}


class Roaring:
    """A scan that combines whole compressed bitmaps."""

    def __init__(self, ranked: list[Campaign]) -> None:
        made = _Postings(ranked)
        self._all = BitMap(range(len(ranked)))
        self._open = {dimension: BitMap(ranks) for dimension, ranks in made.open.items()}
        self._include = {key: BitMap(ranks) for key, ranks in made.include.items()}
        self._exclude = {key: BitMap(ranks) for key, ranks in made.exclude.items()}

    def candidates(self, values: Values, end: int) -> Iterator[int]:
        left = BitMap(range(end))
        for dimension, open in self._open.items():
            keys = [(dimension, value) for value in values.get(dimension, ())]
            included = [self._include[key] for key in keys if key in self._include]
            left &= open.union(*included) if included else open
            for key in keys:
                if key in self._exclude:
                    left -= self._exclude[key]
        return iter(left)


class Bitsets:
    """A scan of numpy rows of bits; rows of rare values store only words that are not zero."""

    def __init__(self, ranked: list[Campaign]) -> None:
        made = _Postings(ranked)
        self._words = len(ranked) // 64 + 1
        self._open = {dimension: self._row(ranks) for dimension, ranks in made.open.items()}
        self._include = {key: self._sparse(ranks) for key, ranks in made.include.items()}
        self._exclude = {key: self._sparse(ranks) for key, ranks in made.exclude.items()}

    def _row(self, ranks: list[int]) -> Row:
        row: Row = np.zeros(self._words, np.uint64)
        where = np.asarray(ranks, np.int64)
        np.bitwise_or.at(row, where >> 6, BITS[where & 63])
        return row

    def _sparse(self, ranks: list[int]) -> tuple[Row, Row]:
        row = self._row(ranks)
        if len(ranks) * 32 > self._words * 64:
            return slice(None), row
        where = np.flatnonzero(row)
        return where, row[where]

    def candidates(self, values: Values, end: int) -> Iterator[int]:
        left = np.full(self._words, ~np.uint64(0))
        for dimension, open in self._open.items():
            keys = [(dimension, value) for value in values.get(dimension, ())]
            row = open
            for key in keys:
                if key in self._include:
                    row = open.copy() if row is open else row
                    where, bits = self._include[key]
                    row[where] |= bits
            left &= row
            for key in keys:
                if key in self._exclude:
                    where, bits = self._exclude[key]
                    left[where] &= ~bits
        for word in np.flatnonzero(left):
            for bit in np.flatnonzero(left[word] & BITS):
                rank = int(word) * 64 + int(bit)
                if rank >= end:
                    return
                yield rank


SCANS: Final[dict[str, type[Plain] | type[Roaring] | type[Bitsets]]] = {
    "numpy bitsets": Bitsets,
    "pyroaring": Roaring,
    "plain scan": Plain,
}
