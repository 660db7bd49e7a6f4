"""A pace: so many begin in one step, the others in their turn."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from snapbid.base.http import Answer, answer
from snapbid.server import pace
from snapbid.server._running import AT_ONCE
from snapbid.server.app import HEALTH_PATHS, Application
from snapbid.server.pace import PER_STEP, QUIET_PER_STEP, QUIET_STEPS, Pace


async def test_a_few_start_at_once_and_the_others_in_order() -> None:
    own, begun = Pace(), []

    async def begin(number: int) -> None:
        await own.turn()
        begun.append(number)

    tasks = [asyncio.create_task(begin(number)) for number in range(3 * PER_STEP)]
    await asyncio.sleep(0)
    assert begun == list(range(PER_STEP))
    await asyncio.gather(*tasks)
    assert begun == list(range(3 * PER_STEP))


async def test_each_step_admits_the_same_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "STEP_S", 3600)
    own = Pace()
    tasks = [asyncio.create_task(own.turn()) for _ in range(3 * PER_STEP)]
    for step in range(3):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert sum(task.done() for task in tasks) == (step + 1) * PER_STEP
        own._step()


async def test_abandoned_waits_take_no_slot() -> None:
    own = Pace()
    tasks = [asyncio.create_task(own.turn()) for _ in range(2 * PER_STEP)]
    await asyncio.sleep(0)
    tasks[-1].cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert done[:-1] == [None] * (2 * PER_STEP - 1)


async def test_a_quiet_period_restores_the_burst() -> None:
    own = Pace()
    for _ in range(2):
        tasks = [asyncio.create_task(own.turn()) for _ in range(PER_STEP)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert all(task.done() for task in tasks)
        while own._stepping:
            await asyncio.sleep(pace.STEP_S)


async def test_more_start_without_recent_bids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "STEP_S", 3600)
    own = Pace()
    flood = QUIET_STEPS * PER_STEP + 3 * QUIET_PER_STEP
    tasks = [asyncio.create_task(own.turn()) for _ in range(flood)]

    async def begun_by_a_step() -> int:
        before = sum(task.done() for task in tasks)
        own._step()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return sum(task.done() for task in tasks) - before

    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [await begun_by_a_step() for _ in range(QUIET_STEPS - 1)] == (
        [PER_STEP] * (QUIET_STEPS - 1)
    )
    assert await begun_by_a_step() == QUIET_PER_STEP
    own.bidding = True
    assert await begun_by_a_step() == PER_STEP
    assert await begun_by_a_step() == PER_STEP, "a bid counts for a while"
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_bid_request_keeps_the_others_few() -> None:
    async def bid(*_: object) -> Answer:
        return answer(204)

    async def nothing(*_: object) -> Any: ...

    resources: Any = SimpleNamespace(bid_endpoints={"/bid": bid}, count=lambda *_: None)
    application = Application(resources)
    own = application._pace
    own._quiet_steps = QUIET_STEPS
    own._step()
    assert own._per_step == QUIET_PER_STEP
    scope = {"type": "http", "path": "/bid", "method": "POST", "headers": []}
    await application(scope, nothing, nothing)
    own._step()
    assert own._per_step == PER_STEP


@pytest.mark.parametrize("path", HEALTH_PATHS)
async def test_health_checks_never_wait(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "STEP_S", 3600)

    async def nothing_missing() -> list[str]:
        return []

    resources: Any = SimpleNamespace(
        bid_endpoints={},
        count=lambda *_: None,
        missing=nothing_missing,
        unavailable=list,
        unreplicated=list,
    )
    application, told = Application(resources), list[Any]()

    async def send(message: Any) -> None:
        told.append(message)

    async def nothing(*_: object) -> Any: ...

    flood = [asyncio.create_task(application._pace.turn()) for _ in range(3 * PER_STEP)]
    await asyncio.sleep(0)
    assert application.kind_of(path) == AT_ONCE
    scope = {"type": "http", "path": path, "method": "GET", "headers": []}
    asked = asyncio.create_task(application(scope, nothing, send))
    for _ in range(10):
        await asyncio.sleep(0)
    assert asked.done()
    assert told[0]["status"] == 200
    for task in flood:
        task.cancel()
    await asyncio.gather(*flood, return_exceptions=True)
