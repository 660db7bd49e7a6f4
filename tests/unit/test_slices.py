"""Work in slices: others have their turn in between, and the result is the same."""

import asyncio
import json
from collections.abc import Generator

import pytest
from support.sending import NOW, event

from snapbid.events import answers
from snapbid.events.outcomes import Product
from snapbid.events.validate import batch_steps, read_batch

PRODUCT = Product("shop")
BODY = json.dumps([event("login", f"u{number}") for number in range(100)] + [event("no")]).encode()


async def turns_during(slice_s: float, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often somebody else had a turn while a batch was read."""
    monkeypatch.setattr(answers, "SLICE_S", slice_s)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    steps = batch_steps(BODY, PRODUCT, NOW, lenient=True)
    read = await answers.Slices().run(steps)
    task.cancel()
    assert read == read_batch(BODY, PRODUCT, NOW, lenient=True)
    return turns


async def test_other_tasks_run_between_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await turns_during(0, monkeypatch) >= 100


async def test_slices_are_not_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await turns_during(3600, monkeypatch) == 0


async def test_errors_propagate() -> None:
    def work() -> Generator[None, None, int]:
        yield
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await answers.Slices().run(work())
