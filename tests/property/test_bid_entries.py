"""The native packing of bids agrees with the plain one, byte by byte, or refuses as it does."""

import asyncio
import contextlib
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.oracle_entries import pair_digest, plain_answer, plain_counts, text_digest

from snapbid.ledger.bids._records import AnswerBids, bid_digest, count, join, keep, user_digest
from snapbid.ledger.bids.records import kept_entries
from snapbid.ledger.budgets.limits import Limits
from snapbid.redisclient._wire import Turn, unanswered

NOBODY: Any = None  # waits
amounts = st.none() | st.integers(0, 2**62)
numbers = st.integers(0, 2**32 - 1)
ids = st.binary(max_size=300)
texts = st.text(st.characters(codec=None), max_size=80)
caps = st.lists(st.tuples(st.integers(1, 2**33), st.integers(1, 2**33)), max_size=4).map(tuple)
prices = st.integers(0, 2**63 - 1) | st.integers(-(10**30), 10**300)
limited = st.builds(Limits, numbers, amounts, amounts, st.none() | st.integers(0, 2**41), caps)
marked = st.integers(0, 2**40 - 1) | st.integers(2**40, 2**64 - 1) | numbers
identities = st.integers(0, 2**24 - 1)
bids = st.lists(st.tuples(ids, marked, prices, st.none() | limited), max_size=6)
times = st.tuples(numbers, st.integers(0, 999))
answers = st.tuples(ids, numbers, bids, texts, times, identities, st.booleans())


def native(arguments: Any, done: Any = NOBODY) -> AnswerBids:
    auction, ssp, bids, user, now, answer, counted = arguments
    return AnswerBids(auction, ssp, bids, user, now, answer, counted, done, 1.0)


@given(ids, ids)
def test_digests_of_pairs(auction_id: bytes, imp_id: bytes) -> None:
    assert bid_digest(auction_id, imp_id) == pair_digest(auction_id, imp_id)


@pytest.mark.parametrize("size", [*range(118, 134), *range(250, 262)])
def test_digests_at_the_edges_of_a_block(size: int) -> None:
    for cut in (0, 1, size // 2, size - 1, size):
        pair = b"a" * cut, b"b" * (size - cut)
        assert bid_digest(*pair) == pair_digest(*pair)


@given(texts)
@example("\ud800")
def test_digests_of_users(user: str) -> None:
    assert user_digest(user) == text_digest(user)


@given(answers)
def test_entries(arguments: Any) -> None:
    try:
        expected = plain_answer(*arguments)
    except struct.error:
        with pytest.raises(OverflowError):
            native(arguments)
        return
    answer = native(arguments)
    assert answer.entries == expected.entries
    assert (answer.ssp, answer.day, answer.bids) == (
        arguments[1], arguments[4][0] // 86_400, len(arguments[2]))  # fmt: skip
    assert answer.is_counted == (not arguments[6])
    assert answer.is_limited == any(bid[3] is not None for bid in arguments[2])


small = st.lists(
    st.tuples(ids, st.integers(0, 5), st.integers(0, 9), st.none() | limited), max_size=4
)
counting = st.tuples(
    ids, st.integers(0, 3), small, texts, st.tuples(st.sampled_from([0, 86_399, 86_400, 2**31]),
    st.just(0)), identities, st.booleans())  # fmt: skip


@given(st.lists(counting, max_size=5))
def test_counts(several: list[Any]) -> None:
    counted = {}
    for day, names, increments in count([native(arguments) for arguments in several]):
        counted[day] = dict(zip(names, increments, strict=True))
    assert counted == plain_counts(plain_answer(*arguments) for arguments in several)


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    with contextlib.closing(asyncio.new_event_loop()) as made:
        yield made


@given(
    batch=st.lists(st.tuples(counting, st.booleans(), st.sampled_from(["", "set", "cancelled"])))
)
def test_a_batch(loop: asyncio.AbstractEventLoop, batch: list[tuple[Any, bool, str]]) -> None:
    """What waits is sent, and told that it was kept; by a reply as by a future."""
    turn, several = Turn(loop), []
    for arguments, by_future, state in batch:
        done: Any = loop.create_future() if by_future else turn.reply()
        several.append(native(arguments, done))
        if state == "set":
            done.set_result("before")
        elif state == "cancelled":
            done.cancel()
    waiting = [answer for answer, (*_, state) in zip(several, batch, strict=True) if not state]
    assert unanswered(several) == waiting
    assert join(several) == (
        b"".join(answer.entries for answer in several),
        any(answer.is_limited for answer in several),
    )
    assert keep(several, "k") == [answer for answer in several if answer not in waiting]
    for answer in waiting:
        assert answer.done.result() == "k" * answer.bids
    assert unanswered(several) == []
    assert keep(several, "k") == several
    for answer in several:
        answer.refuse()  # which comes too late
        assert not answer.accept("b" * answer.bids)


@pytest.mark.parametrize("take", [count, join, lambda batch: keep(batch, "k"), unanswered])
def test_a_batch_consists_of_answers(take: Callable[[Any], Any]) -> None:
    for odd in ([None], [b"entries"], (), None):
        with pytest.raises((TypeError, AttributeError)):
            take(odd)


@given(answers, st.data())
def test_kept_entries_have_no_limits(arguments: Any, data: st.DataObject) -> None:
    """What is taken back is packed like the same bids without limits, marked as kept (8)."""
    arguments = (
        *arguments[:2],
        [(bid[0], bid[1] % 2**40, 7, bid[3]) for bid in arguments[2]],
        *arguments[3:],
    )
    letters = data.draw(st.tuples(*[st.sampled_from("kbc") for _ in arguments[2]]).map("".join))
    entries, at = kept_entries(native(arguments), letters), 0
    kept = [bid for bid, letter in zip(arguments[2], letters, strict=True) if letter == "k"]
    for number, bid in enumerate(kept):
        flags, digest, size = struct.unpack_from("<B16sB", entries, at)
        assert flags == 8 + (1 if number == 0 else 0) + (0 if arguments[6] else 2)
        assert digest == pair_digest(arguments[0], bid[0])
        at += 18 + size
    assert at == len(entries)


@pytest.mark.parametrize(
    "changed",
    [
        {0: "text"}, {0: None}, {1: -1}, {1: 2**32}, {4: (2**32, 0)}, {4: (0, 65_536)}, {4: (1,)},
        {4: None}, {5: -1}, {5: 2**24}, {2: [(b"1", 2**40, 1, None)]}, {2: [(b"1", -1, 1, None)]},
        {2: [("1", 1, 1, None)]}, {2: [(None, 1, 1, None)]}, {2: [(b"1", 1, "1", None)]},
        {2: [(b"1", 1, 1)]}, {2: [(b"1", 1, 1, "limits")]}, {2: None},
    ],
    ids=str,
)  # fmt: skip
def test_malformed_bids_are_refused(changed: dict[int, Any]) -> None:
    arguments: list[Any] = [b"a", 1, [(b"1", 1, 1, None)], None, (0, 0), 1, False]
    native(tuple(arguments))
    for place, value in changed.items():
        arguments[place] = value
    with pytest.raises((TypeError, OverflowError, ValueError, AttributeError)):
        native(tuple(arguments))


class OddLimits:
    """Limits that the product never makes."""

    kinds: Any = 8
    longest_s: Any = 0

    def __init__(self, **fields: Any) -> None:
        self.packed: Any = b""
        self.__dict__.update(fields)

    def at(self, now: int) -> Any:
        return self.packed


@pytest.mark.parametrize(
    "fields",
    [{"packed": b"x" * 65_536}, {"packed": "text"}, {"packed": None}, {"kinds": 256},
     {"kinds": None}, {"longest_s": 2**32}, {"longest_s": 1}],
    ids=str,
)  # fmt: skip
def test_odd_limits_are_refused(fields: dict[str, Any]) -> None:
    bid = (b"1", 1, 1, OddLimits(**fields))
    with pytest.raises((TypeError, OverflowError)):
        native((b"a", 1, [bid], None, (0, 0), 1, False))
    assert native(
        (b"a", 1, [(b"1", 1, 1, OddLimits(packed=b"x" * 65_535))], None, (0, 0), 1, False)
    )


def test_no_references_are_kept() -> None:
    """Packing, counting and refusing leave the references to their arguments as they were."""
    limits = Limits(7, 1_000, None, None, ((1, 60),))
    auction, imp, user, odd = b"an auction", b"an impression", "a user", "no price"
    watched = (auction, imp, user, limits, odd, NOBODY)
    good = (auction, 1, [(imp, 7, 10**20, limits), (imp, 7, 5, None)], user, (0, 0), 1, False)
    bad = (auction, 1, [(imp, 7, 5, limits), (imp, 7, odd, limits)], user, (0, 0), 1, False)

    def work() -> None:
        for _ in range(50):
            count([native(good)])
            with pytest.raises(TypeError):
                native(bad)

    work()
    before = [sys.getrefcount(value) for value in watched[:-1]]
    work()
    assert [sys.getrefcount(value) for value in watched[:-1]] == before
