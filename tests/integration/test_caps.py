"""Frequency caps over a real Redis: impressions and holds of a user in rolling windows."""

import asyncio
import random
from pathlib import Path
from typing import Any

from support.remembered import NOON, Clock, counts, keys, opened
from support.spending import HOLD_S, limits, reserve, sent, state

from snapbid.ledger.ledger import Ledger
from snapbid.ledger.records import BILLING, LOSS, WIN

PRICE = 1_000_000
HOUR = 3600
GIVEN_UP_S = 900  # how long a hold may wait for a spool


async def bid(ledger: Ledger, number: int, of: Any, user: str = "u") -> str:
    return await reserve(ledger, b"auction-%d" % number, (b"1", PRICE, of), user=user)


async def notify(ledger: Ledger, number: int, *kinds: int) -> None:
    for kind in kinds:
        assert await ledger.settle(kind, b"auction-%d" % number, b"1") == "c"


async def test_a_user_is_capped_by_holds_and_impressions(ledger: Ledger) -> None:
    of = limits(caps=((3, HOUR),))
    assert [await bid(ledger, n, of) for n in range(4)] == ["k", "k", "k", "c"]
    await notify(ledger, 0, WIN)
    await notify(ledger, 1, BILLING)
    assert await bid(ledger, 5, of) == "c"
    await notify(ledger, 2, LOSS)
    assert [await bid(ledger, n, of) for n in (6, 7)] == ["k", "c"]
    assert await bid(ledger, 8, of, user="another") == "k"
    assert await bid(ledger, 9, limits(2, caps=((1, HOUR),))) == "k"


async def test_a_hold_ends_by_itself_and_an_impression_with_its_window(
    ledger: Ledger, clock: Clock
) -> None:
    of = limits(caps=((2, HOUR),))
    assert [await bid(ledger, n, of) for n in range(3)] == ["k", "k", "c"]
    clock.now += 1.5
    await notify(ledger, 0, WIN)
    clock.now = NOON + HOLD_S - 0.001
    assert await bid(ledger, 3, of) == "c"
    clock.now = NOON + HOLD_S
    assert [await bid(ledger, n, of) for n in (4, 5)] == ["k", "c"]
    await notify(ledger, 4, LOSS)
    await notify(ledger, 1, BILLING)  # after its hold: an impression nevertheless
    assert await bid(ledger, 6, of) == "c"
    clock.now = NOON + 1.5 + HOUR - 0.001
    assert await bid(ledger, 7, of) == "c"
    clock.now = NOON + 1.5 + HOUR
    assert [await bid(ledger, n, of) for n in (8, 9)] == ["k", "c"]


async def test_the_time_of_an_impression_is_its_billing(ledger: Ledger, clock: Clock) -> None:
    of = limits(caps=((1, 100),))
    assert await bid(ledger, 0, of) == "k"
    await notify(ledger, 0, WIN)
    clock.now += 30
    await notify(ledger, 0, BILLING)
    clock.now += 99
    assert await bid(ledger, 1, of) == "c"
    clock.now += 1
    assert await bid(ledger, 2, of) == "k"
    await notify(ledger, 2, BILLING)
    clock.now += 99
    await notify(ledger, 2, WIN, LOSS)
    clock.now += 1
    assert await bid(ledger, 3, of) == "k"


async def test_every_cap_counts(ledger: Ledger, clock: Clock) -> None:
    of = limits(caps=((2, HOUR), (3, 5 * HOUR)))
    letters = ""
    for number in range(8):
        letters += (letter := await bid(ledger, number, of))
        if letter == "k":
            await notify(ledger, number, WIN, BILLING)
        clock.now += HOUR / 2
    assert letters == "kkkccccc"
    clock.now = NOON + 5 * HOUR
    assert await bid(ledger, 20, of) == "k"


async def test_a_refused_budget_holds_no_impression(ledger: Ledger) -> None:
    of = limits(total=PRICE // 1000, caps=((2, HOUR),))
    assert [await bid(ledger, n, of) for n in range(3)] == ["k", "b", "b"]
    await notify(ledger, 0, LOSS)
    assert await bid(ledger, 3, of) == "k"
    await notify(ledger, 3, LOSS)
    assert [await bid(ledger, 4, of), await bid(ledger, 5, of, "x")] == ["k", "b"]
    await notify(ledger, 4, WIN, BILLING, LOSS)
    assert (await state(ledger)).used == PRICE


async def test_a_cap_refused_holds_no_money(ledger: Ledger) -> None:
    of = limits(total=10 * PRICE, caps=((1, HOUR),))
    assert [await bid(ledger, n, of) for n in range(2)] == ["k", "c"]
    assert (await state(ledger)).used == PRICE


async def test_several_impressions_of_one_answer(ledger: Ledger, store: Any) -> None:
    of = limits(caps=((2, HOUR),))
    bids = [(b"%d" % number, PRICE, of) for number in range(4)]
    assert await reserve(ledger, b"a", *bids, user="u") == "kkcc"
    assert counts(store) == {"2030-06-15": {"b:1": 1, "B:1": 2}}


async def test_a_look_holds_no_impression(ledger: Ledger, store: Any) -> None:
    of = limits(caps=((1, HOUR),))
    for _ in range(3):
        assert await ledger.look(b"a", [(b"1", 1, PRICE, of)], "u", 10.0) == "k"
    assert await bid(ledger, 0, of) == "k"
    assert await ledger.look(b"b", [(b"1", 1, PRICE, of)], "u", 10.0) == "c"


async def test_what_was_not_answered_does_not_count(ledger: Ledger) -> None:
    of = limits(caps=((1, HOUR),))
    waiting = ledger.remember(b"late", 1, [(b"1", 1, PRICE, of)], "u", 10.0)
    assert waiting is not None
    await sent(ledger)
    waiting.cancel()
    assert await reserve(ledger, b"next", (b"1", PRICE, None)) == "k"
    assert await bid(ledger, 0, of) == "k"


async def test_what_is_kept_of_users_has_an_end(ledger: Ledger, store: Any) -> None:
    of = limits(caps=((2, HOUR), (5, 10)))
    for number in range(2):
        assert await bid(ledger, number, of) == "k"
    await notify(ledger, 0, WIN)
    (holds,), (impressions,) = keys(store, "{sb0}:fe:*"), keys(store, "{sb0}:fc:*")
    assert HOLD_S < store.ttl(holds) <= HOLD_S + 60 + GIVEN_UP_S
    assert HOUR < store.ttl(impressions) <= HOUR + 60


async def test_no_user_sees_more_than_the_cap_in_any_window(
    fresh_redis: str, tmp_path: Path, ledger: Ledger, clock: Clock
) -> None:
    """Users that come back hundreds of times, over two workers at once, with losses between."""
    rng = random.Random(5)
    of = limits(caps=((2, 40), (5, 200)))
    seen: dict[str, list[float]] = {}

    async def visit(worker: Ledger, number: int, user: str) -> None:
        if await bid(worker, number, of, user) != "k":
            return
        outcome = rng.choice(("win", "win", "loss", "nothing"))
        if outcome == "loss":
            await notify(worker, number, LOSS)
        elif outcome == "win":
            moment = clock.now
            await notify(worker, number, WIN, BILLING)
            seen.setdefault(user, []).append(moment)

    async with opened(fresh_redis, tmp_path / "other", clock=clock) as other:
        for step in range(400):
            clock.now += rng.choice((0.25, 1, 3, 7.5))
            await asyncio.gather(
                *(
                    visit((ledger, other)[n % 2], step * 100 + n, f"user {rng.randrange(4)}")
                    for n in range(12)
                )
            )
    assert sum(map(len, seen.values())) > 60
    for times in seen.values():
        for most, seconds in ((2, 40), (5, 200)):
            assert all(
                later - earlier >= seconds
                for earlier, later in zip(times, times[most:], strict=False)
            )
