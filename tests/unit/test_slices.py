"""Work in slices: others have their turn in between, and the result is the same."""

import asyncio
import json
from collections.abc import Generator

import pytest
from support.event_reading import read_batch
from support.sending import NOW, event

from snapbid.events import turns
from snapbid.events.answers import EventsUnavailable
from snapbid.events.outcomes import Product
from snapbid.events.validate import batch_steps

PRODUCT = Product("shop")
BODY = json.dumps([event("login", f"u{number}") for number in range(100)] + [event("no")]).encode()


async def turns_during(slice_s: float, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often another task ran while a batch was read."""
    monkeypatch.setattr(turns, "SLICE_S", slice_s)
    count = 0

    async def other() -> None:
        nonlocal count
        while True:
            count += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    steps = batch_steps(BODY, PRODUCT, NOW, lenient=True)
    read = await turns.Slices().run(steps)
    task.cancel()
    assert read == read_batch(BODY, PRODUCT, NOW, lenient=True)
    return count


async def test_other_tasks_run_between_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await turns_during(0, monkeypatch) >= 100


async def test_slices_are_not_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await turns_during(3600, monkeypatch) == 0


async def test_errors_propagate() -> None:
    def work() -> Generator[None, None, int]:
        yield
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await turns.Slices().run(work())


async def test_slices_go_round_what_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "SLICE_S", 0)
    slices, order = turns.Slices(), list[str]()

    def work(name: str, steps: int) -> Generator[None, None, None]:
        for _ in range(steps):
            order.append(name)
            yield

    await asyncio.gather(slices.run(work("flood", 9)), slices.run(work("other", 3)))
    assert order == ["flood", "other"] * 3 + ["flood"] * 6


async def test_a_product_reads_one_batch_at_a_time_and_others_go_on() -> None:
    batches, under_way = turns.BatchTurns(), list[str]()

    async def read(product: str) -> None:
        async with batches.take(product, 1):
            under_way.append(product)
            await asyncio.Event().wait()

    tasks = [asyncio.create_task(read(product)) for product in ("a", "a", "b")]
    await asyncio.sleep(0)
    assert under_way == ["a", "b"]
    tasks[0].cancel()
    await asyncio.wait(tasks[:1])
    await asyncio.sleep(0)
    assert under_way == ["a", "b", "a"]
    for task in tasks:
        task.cancel()


async def test_what_waits_is_bounded_by_product() -> None:
    batches = turns.BatchTurns()
    async with batches.take("a", turns.MOST_WAITING - 1):
        with pytest.raises(EventsUnavailable):
            async with batches.take("a", 2):
                pass
        async with batches.take("b", 2):
            pass
    async with batches.take("a", turns.MOST_WAITING):
        pass
