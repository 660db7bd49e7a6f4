"""Partitions: addresses of 127.0.0.0/8 that do not reach each other.

They need a network of this program's own (`enter`), where rules of routing drop packets by source
and destination; and a C compiler, for the addresses of programs (source.c). A connection falls
silent, and a new one finds no route, or stays silent where only the answers are dropped.
"""

import contextlib
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from enum import Enum
from pathlib import Path
from typing import Final

from support.preload import compiled

SOURCE: Final = Path(__file__).with_name("source.c")
PRIVATE: Final = "SOAK_HAS_ITS_OWN_NETWORK"
# Rules of ours come before the one for local addresses.
_SET_UP: Final = ("link set lo up", "rule add pref 100 lookup local", "rule del pref 0")


class Lost(Enum):
    """Packets that a partition drops."""

    ALL = "both ways"
    TO = "to it"
    FROM = "from it"


def enter() -> None:
    """Run this program again in a network of its own, where that is possible; it ends with it."""
    if PRIVATE in os.environ:
        _ip(*_SET_UP)
        return
    if shutil.which("ip") is None or shutil.which("unshare") is None:
        return
    user = [] if os.geteuid() == 0 else ["--user", "--map-current-user", "--keep-caps"]
    command = ["unshare", "--net", *user]
    if subprocess.run([*command, "ip", "link", "set", "lo", "up"], capture_output=True).returncode:
        return
    os.environ[PRIVATE] = "1"
    sys.stdout.flush()
    os.execvp(command[0], [*command, *sys.orig_argv])


class Network:
    """Which addresses do not reach each other; `lacking` is why none can be kept apart, or ""."""

    def __init__(self) -> None:
        library = compiled(SOURCE)
        self._preferences = itertools.cycle(range(10, 100))  # two may cut the same, each by its own
        self.lacking = ""
        if PRIVATE not in os.environ:
            self.lacking = "no network of its own"
        elif library is None:
            self.lacking = "no C compiler"
        self._library = library

    def environ(self, source: str) -> dict[str, str]:
        """For a program whose connections are to have an address."""
        return {} if self.lacking else {"LD_PRELOAD": str(self._library), "SOURCE": source}

    @contextlib.contextmanager
    def cut(
        self, ones: Collection[str], others: Collection[str], lost: Lost = Lost.ALL
    ) -> Iterator[None]:
        """Drop what is sent between two groups of addresses, or one way, seen from the first."""
        ways = [(one, other) for one in ones for other in others]
        rules = [] if lost is Lost.TO else [f"from {one} to {other}" for one, other in ways]
        rules += [] if lost is Lost.FROM else [f"from {other} to {one}" for one, other in ways]
        preference = next(self._preferences)
        _ip(*(f"rule add pref {preference} {rule} unreachable" for rule in rules))
        try:
            yield
        finally:
            _ip(*(f"rule del pref {preference} {rule} unreachable" for rule in rules))


def _ip(*commands: str) -> None:
    """All at once."""
    text = "".join(f"{command}\n" for command in commands)
    subprocess.run(["ip", "-batch", "-"], input=text, text=True, check=True)
