"""A pace for what is not a bid, so that a flood of it leaves a worker the time to bid."""

import asyncio
from collections import deque
from typing import Final

STEP_S: Final = 0.001
AT_ONCE: Final = 8  # begin in one step


class Pace:
    """Lets so many begin in each step, the others in their turn.

    Nobody is refused: who waits for an answer sends nothing more on its connection, and so a flood
    slows itself down.
    """

    def __init__(self) -> None:
        self._begun = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._stepping = False

    async def turn(self) -> None:
        """Waits for one's turn."""
        if not self._stepping:
            self._stepping = True
            asyncio.get_running_loop().call_later(STEP_S, self._step)
        if self._begun < AT_ONCE:
            self._begun += 1
            return
        own: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(own)
        await own

    def _step(self) -> None:
        self._begun = min(AT_ONCE, len(self._waiting))
        for _ in range(self._begun):
            first = self._waiting.popleft()
            if not first.done():
                first.set_result(None)
        self._stepping = self._begun > 0
        if self._stepping:
            asyncio.get_running_loop().call_later(STEP_S, self._step)
