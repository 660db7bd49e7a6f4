"""Takes out what agrees, in columns, so that only the rest is looked at one by one.

A claim agrees at once where it is the only one of its kind for its impression, and so are the bid
and the notice that counts. Whatever is not as plain is left to `compare`, with all rows of its
auction, which may find that it agrees after all.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from snapbid.reconcile import prices
from snapbid.reconcile.claims import BID, LOSS
from snapbid.reconcile.own import DAY_MS
from snapbid.reconcile.prices import Terms


class AgreedDay(NamedTuple):
    """What agrees of one kind on one day of ours: how much, what it costs, and if it has a time."""

    kind: str
    day: int
    has_time: bool
    number: int
    cost: int


class Rows(NamedTuple):
    """Claims, bids and notices of the same auctions."""

    claims: pa.RecordBatch
    bids: pa.RecordBatch
    notices: pa.RecordBatch

    def of_auctions(self, auctions: pa.Array) -> "Rows":
        return Rows(*(each.filter(pc.is_in(each["auction"], value_set=auctions)) for each in self))


def take_out(rows: Rows, kinds: Iterable[str], terms: Terms) -> tuple[list[AgreedDay], Rows]:
    """What agrees, and the rows of all other auctions that matter."""
    bids = rows.bids
    bid_keys = keys_of(bids["auction"], bids["imp"])
    claim_keys = keys_of(rows.claims["auction"], _imps(rows))
    plain: list[pa.RecordBatch] = []
    left: list[pa.Array] = []
    for kind in kinds:
        of_kind = pc.equal(rows.claims["kind"], kind)
        claims, keys = rows.claims.filter(of_kind), claim_keys.filter(of_kind)
        notices = rows.notices.filter(pc.equal(rows.notices["kind"], kind))
        agreeing = _agreeing(kind, claims, keys, bids, bid_keys, notices, terms)
        plain.append(agreeing)
        left.append(claims["auction"].filter(pc.invert(agreeing["agrees"])))
        counted = pc.invert(bids["test"])
        if kind != BID:
            verdicts = pa.array(["counted", "late", "duplicate"])
            counting = notices.filter(pc.is_in(notices["verdict"], value_set=verdicts))
            known = keys_of(counting["auction"], counting["imp"])
            counted = pc.and_(counted, pc.is_in(bid_keys, value_set=known))
        claimed = keys.filter(agreeing["agrees"])
        unclaimed = pc.and_(counted, pc.invert(pc.is_in(bid_keys, value_set=claimed)))
        left.append(bids["auction"].filter(unclaimed))
    odd = pa.chunked_array(left, pa.string()).unique()
    return list(_totals(plain, odd)), rows.of_auctions(odd)


def _agreeing(
    kind: str,
    claims: pa.RecordBatch,
    keys: pa.Array,
    bids: pa.RecordBatch,
    bid_keys: pa.Array,
    notices: pa.RecordBatch,
    terms: Terms,
) -> pa.RecordBatch:
    """Which claims of a kind agree; with their auction, and the day and cost that counts."""
    bid = bids.take(_only_place(keys, bid_keys))
    day_ms = bid["time_ms"]
    conditions = [
        _is_only(keys),
        pc.equal(bid["auction"], claims["auction"]),
        pc.invert(bid["test"]),
        pc.equal(claims["mistake"], ""),
        pc.or_(
            pc.is_null(claims["descriptor"]),
            pc.is_in(claims["descriptor"], value_set=pa.array(terms.descriptors, pa.string())),
        ),
    ]
    if kind != BID:
        verdicts = pa.array(["counted", "late"])
        counting = notices.filter(pc.is_in(notices["verdict"], value_set=verdicts))
        notice = counting.take(_only_place(keys, keys_of(counting["auction"], counting["imp"])))
        conditions.append(pc.equal(notice["auction"], claims["auction"]))
        is_late = pc.equal(notice["verdict"], "late")
        day_ms = pc.if_else(is_late, notice["time_ms"], day_ms)
    days = pc.divide(day_ms, DAY_MS)
    their_days = pc.divide(claims["time_ms"], DAY_MS)
    conditions.append(pc.or_kleene(pc.is_null(their_days), pc.equal(their_days, days)))
    if kind != LOSS:
        conditions.append(prices.agree(claims, bid, terms))
    agrees = conditions[0]
    for condition in conditions[1:]:
        agrees = pc.and_(agrees, pc.fill_null(condition, fill_value=False))
    columns = {
        "agrees": agrees,
        "auction": claims["auction"],
        "kind": claims["kind"],
        "day": days,
        "has_time": pc.is_valid(claims["time_ms"]),
        "cost": bid["cost"],
    }
    return pa.record_batch(list(columns.values()), list(columns))


def _totals(plain: Iterable[pa.RecordBatch], odd: pa.Array) -> Iterator[AgreedDay]:
    for batch in plain:
        chosen = pc.and_(batch["agrees"], pc.invert(pc.is_in(batch["auction"], value_set=odd)))
        table = pa.Table.from_batches([batch.filter(chosen)])
        days = table.group_by(["kind", "day", "has_time"])
        for row in days.aggregate([("cost", "count"), ("cost", "sum")]).to_pylist():
            yield AgreedDay(
                row["kind"], row["day"], row["has_time"], row["cost_count"], row["cost_sum"]
            )


def _imps(rows: Rows) -> pa.Array:
    """The claims' impressions; where one has none, that of the auction's only bid."""
    claims, bids = rows.claims, rows.bids
    if not claims["imp"].null_count:
        return claims["imp"]
    places = _only_place(claims["auction"], bids["auction"])
    return pc.coalesce(claims["imp"], bids["imp"].take(places))


def keys_of(auctions: pa.Array, imps: pa.Array) -> pa.Array:
    """What names an impression. Ids with a NUL may share one, so auctions are compared too."""
    return pc.binary_join_element_wise(auctions, imps, "\0")


def _is_only(keys: pa.Array) -> pa.Array:
    """Which keys are there once; none that are null."""
    counted = keys.value_counts()
    single = counted.field(0).filter(pc.equal(counted.field(1), 1))
    return pc.and_(pc.is_valid(keys), pc.is_in(keys, value_set=single))


def _only_place(keys: pa.Array, among: pa.Array) -> pa.Array:
    """Where each key stands among others; null where it doesn't, or more than once."""
    is_only = _is_only(among)
    places = pc.indices_nonzero(is_only)
    found = pc.index_in(keys, value_set=among.filter(is_only), skip_nulls=True)
    return places.take(found)
