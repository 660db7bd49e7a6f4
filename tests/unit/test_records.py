"""Where a bid's record is found: different pairs never meet (contract 5)."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from snapbid.base.redis_keys import shard_of
from snapbid.ledger.bids.records import DIGEST_SIZE, NOTICE, bid_digest, pack_notice

HOSTILE = [b"", b"\0", b"a", b"ab", b"bc", b"c", b"abc", b"a\0", b"\0a", b"\xff" * 512, b"a" * 512]


def test_pair_digests_are_unambiguous() -> None:
    assert bid_digest(b"a", b"bc") != bid_digest(b"ab", b"c")
    assert bid_digest(b"", b"abc") != bid_digest(b"abc", b"")
    pairs = [(auction, imp) for auction in HOSTILE for imp in HOSTILE]
    assert len({bid_digest(*pair) for pair in pairs}) == len(pairs)


@given(st.binary(max_size=64), st.binary(max_size=64), st.binary(max_size=64), st.binary())
def test_only_the_same_pair_has_the_same_bid_digest(a: bytes, b: bytes, c: bytes, d: bytes) -> None:
    assert (bid_digest(a, b) == bid_digest(c, d)) == ((a, b) == (c, d))
    assert len(bid_digest(a, b)) == DIGEST_SIZE


@given(st.binary(max_size=512), st.integers(1, 64))
def test_every_auction_has_one_of_the_shards(auction: bytes, shards: int) -> None:
    assert 0 <= shard_of(auction, shards) < shards
    assert shard_of(auction, shards) == shard_of(bytes(auction), shards)


def test_auctions_are_spread_over_the_shards_and_buckets() -> None:
    auctions = [b"auction-%d" % number for number in range(4000)]
    shards = Counter(shard_of(auction, 4) for auction in auctions)
    assert min(shards.values()) > 800
    buckets = {bid_digest(auction, b"1")[:2] for auction in auctions}
    assert len(buckets) > 3500


def test_layouts_are_those_of_the_scripts() -> None:
    assert NOTICE.size == 31
    packed = NOTICE.pack(4, -1, b"p" * 16, 1_900_000_000, 999, 1, 2)
    came, run = b"\x00\xb3\x3f\x71\xe7\x03", b"\x01\x00\x00\x00\x02\x00"
    assert packed == b"\x04\xff\xff" + b"p" * 16 + came + run


@given(
    st.integers(0, 255),
    st.integers(-1, 9_999),
    st.binary(max_size=64),
    st.binary(max_size=64),
    st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 999)),
    st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 999)),
)
def test_a_notice_is_packed_as_it_is_read(
    kind: int, reason: int, a: bytes, b: bytes, came: tuple[int, int], run: tuple[int, int]
) -> None:
    packed = pack_notice(kind, reason, a, b, came, run)
    assert NOTICE.unpack(packed) == (kind, reason, bid_digest(a, b), *came, *run)
