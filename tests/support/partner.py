"""A partner that sends events while things break, and knows which were acknowledged."""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from support import sending
from support.lanes import Lane, Reply
from support.sending import BATCH, SINGLE, cashed_out, claimed, completed, event, money, offered

LANES: Final = 6
MARK: Final = "mark-of-a-partner"  # in every event; must be in no log
SIZES: Final = (1, 1, 2, 50, 300, 600)
STORED_S: Final = 120.0


class EventLane(Lane):
    """A connection that sends events."""

    async def send(self, path: str, document: Any, key: str) -> Reply | None:
        body = json.dumps(document).encode()
        return await self._ask(
            b"POST %b HTTP/1.1\r\nhost: events.example\r\ncontent-type: application/json\r\n"
            b"x-api-key: %b\r\ncontent-length: %d\r\n\r\n%b"
            % (path.encode(), key.encode(), len(body), body)
        )


class Partner:
    """Sends events while `go_on(self)` is true, each until it is acknowledged.

    Every event has a tag, the next number; `acknowledged` are the tags of those that had a 202.
    """

    def __init__(
        self,
        rng: random.Random,
        port: int,
        key: str,
        go_on: "Callable[[Partner], bool]",
        *,
        sizes: tuple[int, ...] = SIZES,
        pause_s: float = 0.0,
        click_id: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._rng = rng
        self._port = port
        self._key = key
        self._go_on = go_on
        self._sizes = sizes
        self._pause_s = pause_s
        self._click_id = click_id
        self.sent = 0
        self.acknowledged: set[str] = set()
        self.statuses: Counter[int | None] = Counter()
        self.wrong: list[str] = []

    async def run(self, lanes: int = LANES) -> None:
        await asyncio.gather(*(self._work(EventLane(self._port)) for _ in range(lanes)))

    async def _work(self, lane: EventLane) -> None:
        while self._go_on(self):
            size = self._rng.choice(self._sizes)
            tags = [str(self.sent + place) for place in range(size)]
            self.sent += size
            events = [self._clicked(self._event(tag)) for tag in tags]
            single = size == 1 and self._rng.random() < 0.5
            path, document = (SINGLE, events[0]) if single else (BATCH, events)
            for _ in range(self._rng.choice((1, 1, 1, 2))):  # some are sent again after their 202
                await self._until_acknowledged(lane, path, document)
            self.acknowledged.update(tags)
            await asyncio.sleep(self._pause_s)
        lane.close()

    async def _until_acknowledged(self, lane: EventLane, path: str, document: Any) -> None:
        while True:
            reply = await lane.send(path, document, self._key)
            status = reply.status if reply else None
            self.statuses[status] += 1
            if status == 202:
                return
            if reply is not None and status not in (429, 503):
                self.wrong.append(f"{status} to events: {reply.body!r}")
                return
            await asyncio.sleep(1.0 if status == 429 else 0.02)

    def _clicked(self, event: dict[str, Any]) -> dict[str, Any]:
        click_id = self._click_id()
        if click_id is not None:
            event["identity"]["click_id"] = click_id
        return event

    def _event(self, tag: str) -> dict[str, Any]:
        more: dict[str, Any] = {"tag": tag, "mark": MARK}
        bonus, number = f"b{int(tag) // 5}", int(tag) % 5
        if int(tag) // 5 % 2:
            return [
                event("login", f"u{tag}", user_agent="Mozilla/5.0", **more),
                event("deposit_initiated", transaction_id=bonus, **money(5), **more),
                event("deposit", transaction_id=bonus, **money(5), **more),
                event("withdraw", transaction_id=bonus, **money(5), **more),
                event("app_open", platform="ios", **more),
            ][number]
        made = (offered, claimed, completed)
        return made[number](bonus, **more) if number < 3 else cashed_out(bonus, number, **more)


def stored(dsn: str) -> Counter[str]:
    """The number of events in the warehouse by tag."""
    fetched = sending.rows(dsn, "select context ->> 'tag' as tag from events")
    return Counter(row["tag"] for row in fetched)


def await_stored(dsn: str, tags: set[str], patience_s: float = STORED_S) -> Counter[str]:
    """Wait until all tags are stored; returns what is stored then."""
    deadline = time.monotonic() + patience_s
    while not tags <= (by_tag := stored(dsn)).keys():
        missing = len(tags - by_tag.keys())
        assert time.monotonic() < deadline, f"{missing} events are not stored"
        time.sleep(0.2)
    return by_tag
