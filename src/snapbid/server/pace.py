"""A rate limit on requests other than bids and notices, so that a flood leaves time to bid."""

import asyncio
from collections import deque
from typing import Final

STEP_S: Final = 0.001
PER_STEP: Final = 8  # requests started in one step while bid requests arrive
QUIET_STEPS: Final = 16  # steps without a bid request after which QUIET_PER_STEP applies
QUIET_PER_STEP: Final = 64


class Pace:
    """Starts a limited number of requests in each step of `STEP_S`; the others queue.

    Applies to routes with `paced` set: all except those of bids, notices and health checks.

    The limit is low while bid requests arrive, which the caller signals by setting `bidding`. After
    a while without bid requests, it is higher, since a queued request costs a worker more than one
    started at once. No request is refused: a client waiting for an answer sends nothing more on
    its connection, so a flood slows itself down.
    """

    def __init__(self) -> None:
        self.bidding = False
        self._quiet_steps = 0
        self._per_step = PER_STEP
        self._begun = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._stepping = False

    async def turn(self) -> None:
        """If too many requests have started within STEP_S, wait until this one may start."""
        if not self._stepping:
            self._stepping = True
            asyncio.get_running_loop().call_later(STEP_S, self._step)
        if self._begun < self._per_step:
            self._begun += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        await turn

    def _step(self) -> None:
        self._quiet_steps = 0 if self.bidding else self._quiet_steps + 1
        self.bidding = False
        self._per_step = PER_STEP if self._quiet_steps < QUIET_STEPS else QUIET_PER_STEP
        self._begun = min(self._per_step, len(self._waiting))
        for _ in range(self._begun):
            first = self._waiting.popleft()
            if not first.done():
                first.set_result(None)
        self._stepping = self._begun > 0
        if self._stepping:
            asyncio.get_running_loop().call_later(STEP_S, self._step)
