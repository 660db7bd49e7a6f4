"""A machine with everything on it: both stores, a server with two workers, a drain.

Each process can be killed separately. `home` is the machine's directory.
"""

import asyncio
import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from snapbid.embedded import Home, Postgres, Redis
from snapbid.warehouse.migrate import migrate
from support.processes import workers_of
from support.proxy import FaultProxy
from support.remembered import keys, looking
from support.stack import Stack

WORKERS: Final = 2
NOTHING: Final[Mapping[str, str]] = {}


class Machine:
    """The stores run from the beginning, the programs after `start`, with `environ` for both."""

    def __init__(self, home: Home, **environ: str) -> None:
        self.home = home
        self.redis, self.postgres = Redis(home), Postgres(home)
        self._environ = environ
        self._programs: list[Stack] = []
        self.redis.start()
        self.postgres.start()
        asyncio.run(migrate(self.postgres.dsn))

    def start(
        self, served: Mapping[str, str] = NOTHING, drain: Mapping[str, str] = NOTHING
    ) -> None:
        """Start the server and the drain, each with additional settings."""
        environ = {
            "SNAPBID_HOME": str(self.home.path / "served"),
            "SNAPBID_DATABASE_URL": self.postgres.dsn,
            "SNAPBID_REDIS_URL": self.redis.url,
            "SNAPBID_WORKERS": str(WORKERS),
            **self._environ,
        }
        self.drain = Stack({**environ, **drain}, "drain")
        self.served = Stack({**environ, **served})
        self._programs = [self.served, self.drain]
        self.drain.launch()
        self.served.start()

    def close(self) -> None:
        for program in self._programs:
            program.close()
        self.redis.stop()
        self.postgres.stop()

    @property
    def workers(self) -> list[int]:
        """The process ids of the HTTP workers."""
        assert self.served.process
        return sorted(workers_of(self.served.process.pid))

    def is_quiet(self) -> bool:
        return is_quiet(self.redis.url, self.home.path)

    def kill(self, victim: str) -> None:
        """Kill the drain, Redis or PostgreSQL with SIGKILL."""
        process = getattr(self, victim).process
        process.kill()
        process.wait()

    async def lose_redis(self, proxy: FaultProxy, how: str) -> None:
        """Stall the wire to Redis ("briefly", "stalled"), end it ("unreachable"), or kill Redis."""
        if how in ("briefly", "stalled"):
            proxy.stall()
        elif how == "unreachable":
            await proxy.disconnect()
        else:
            self.kill("redis")

    async def regain_redis(self, proxy: FaultProxy) -> None:
        if self.redis.process is None or self.redis.process.poll() is not None:
            self.redis.start()
        await proxy.resume()

    def start_again(self, victim: str) -> None:
        if victim == "drain":
            self.drain.launch()
        else:
            getattr(self, victim).start()


def is_quiet(redis_url: str, home: Path) -> bool:
    """Whether the drain has nothing to move, and no spool below `home` is to be replayed."""
    with looking(redis_url) as client:
        changed = {*keys(client, "{sb*}:d"), *keys(client, "{sb*}:d:taken")}
    return not changed and not list(home.rglob("*.spool"))


@contextlib.contextmanager
def temporary_home() -> Iterator[Home]:
    with (
        tempfile.TemporaryDirectory(prefix="snapbid-machine-") as folder,
        Home(Path(folder)) as home,
    ):
        yield home
