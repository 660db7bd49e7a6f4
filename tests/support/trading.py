"""A client that trades while a test does something else."""

import asyncio
import threading

from support.books import Books, trade


class Trading(threading.Thread):
    """Trades in a thread until it is told to stop."""

    def __init__(self, own: Books, port: int) -> None:
        super().__init__()
        self._own = own
        self._port = port
        self._stop_trading = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            asyncio.run(self._trade())
        except BaseException as error:
            self.error = error

    async def _trade(self) -> None:
        while not self._stop_trading.is_set():
            await trade(self._own, self._port, auctions=200, lanes=8)

    def finish(self) -> None:
        self._stop_trading.set()
        self.join()
        if self.error:
            raise self.error
