"""A tiny bidder on a real socket, as slow, stuck or wrong as a test wants it.

It serves to test the load test itself: everything the server did is known exactly.
"""

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

Answer = Callable[[dict[str, Any]], bytes]
NO_CONTENT: Final = b"HTTP/1.1 204 No Content\r\n\r\n"


def with_body(status: int, body: bytes) -> bytes:
    return b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)


def no_bid(request: dict[str, Any]) -> bytes:
    return NO_CONTENT


def bid(request: dict[str, Any], **changes: Any) -> bytes:
    """A valid bid on the first impression, with changes."""
    auction, imp = request["id"], request["imp"][0]
    query = f"?id={auction}&impId={imp['id']}"
    made: dict[str, Any] = {
        "id": "1",
        "impid": imp["id"],
        "price": 900.0,
        "adm": "<p>",
        "adomain": ["shop.example"],
        "cid": "c",
        "crid": "cr",
        "nurl": f"http://bid.example/rtb/win{query}",
        "burl": f"http://bid.example/rtb/bill{query}",
        "lurl": f"http://bid.example/rtb/loss{query}&nbr=${{AUCTION_LOSS}}",
    }
    for number, media in enumerate(("banner", "video", "audio", "native"), 1):
        if media in imp:
            made["mtype"] = number
            break
    if made["mtype"] == 1:
        made |= {"w": imp["banner"]["w"], "h": imp["banner"]["h"]}
    response = {"id": auction, "bidid": "b", "cur": "USD", "seatbid": [{"bid": [made | changes]}]}
    return with_body(200, json.dumps(response).encode())


class StubBidder:
    """Answers bid requests with `answer`; everything else with an empty 200.

    At request `stall_from` it stops answering for `stall_s` seconds, once. With `service_s`,
    requests are served in sequence, each for that long; with `delay_s`, each takes that long beside
    the others.
    """

    def __init__(
        self,
        answer: Answer = no_bid,
        *,
        stall_from: int = -1,
        stall_s: float = 0.0,
        service_s: float = 0.0,
        delay_s: float = 0.0,
    ) -> None:
        self._answer = answer
        self._stall_from = stall_from
        self._stall_s = stall_s
        self._service_s = service_s
        self._delay_s = delay_s
        self._open_at = 0.0
        self.asked: Counter[str] = Counter()
        self.targets: list[str] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                method, target, _ = head.split(" ", 2)
                size = head.lower().partition("content-length: ")[2].partition("\r\n")[0]
                body = await reader.readexactly(int(size or 0))
                writer.write(await self._respond(method, target, body))
        except (EOFError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _respond(self, method: str, target: str, body: bytes) -> bytes:
        self.targets.append(target)
        path = target.partition("?")[0]
        if not path.endswith("/bid"):
            self.asked[path] += 1
            return with_body(200, b"")
        self.asked["bid"] += 1
        now = time.monotonic()
        if self.asked["bid"] == self._stall_from:
            self._open_at = now + self._stall_s
        self._open_at = max(self._open_at, now) + self._service_s
        await asyncio.sleep(self._open_at - now + self._delay_s)
        try:
            request = json.loads(body)
        except ValueError:
            return with_body(400, b"{}")
        return self._answer(request)

    @contextmanager
    def running(self) -> Iterator["StubBidder"]:
        """Serve on a free port, in a thread."""
        ready = threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(self._run(ready)))
        thread.start()
        ready.wait()
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._stop.set)
            thread.join()

    async def _run(self, ready: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await self._stop.wait()
        server.close()
