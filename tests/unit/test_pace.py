"""A pace: so many begin in one step, the others in their turn."""

import asyncio

import pytest

from snapbid.server import pace
from snapbid.server.pace import PER_STEP, Pace


async def test_so_many_begin_at_once_and_the_others_in_order() -> None:
    own, begun = Pace(), []

    async def begin(number: int) -> None:
        await own.turn()
        begun.append(number)

    tasks = [asyncio.create_task(begin(number)) for number in range(3 * PER_STEP)]
    await asyncio.sleep(0)
    assert begun == list(range(PER_STEP))
    await asyncio.gather(*tasks)
    assert begun == list(range(3 * PER_STEP))


async def test_each_step_lets_in_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "STEP_S", 3600)
    own = Pace()
    tasks = [asyncio.create_task(own.turn()) for _ in range(3 * PER_STEP)]
    for step in range(3):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert sum(task.done() for task in tasks) == (step + 1) * PER_STEP
        own._step()


async def test_who_gave_up_takes_nobodys_turn_away() -> None:
    own = Pace()
    tasks = [asyncio.create_task(own.turn()) for _ in range(2 * PER_STEP)]
    await asyncio.sleep(0)
    tasks[-1].cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert done[:-1] == [None] * (2 * PER_STEP - 1)


async def test_after_a_quiet_time_as_many_begin_at_once() -> None:
    own = Pace()
    for _ in range(2):
        tasks = [asyncio.create_task(own.turn()) for _ in range(PER_STEP)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert all(task.done() for task in tasks)
        while own._stepping:
            await asyncio.sleep(pace.STEP_S)
