"""The faults. Each is a context manager: entering it breaks something, leaving it repairs it.

It yields what exactly it broke. Only the stage's supervisor restarts what has ended. `PARTS` names
the part that each fault concerns; faults of different parts may be combined. `SUDDEN` are those
that need no repair and are over at once.
"""

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Final

from support.soak.stage import Stage

Broken = contextlib.AbstractContextManager[str]
Fault = Callable[[Stage, random.Random], Broken]

FAULTS: Final[dict[str, Fault]] = {}
PARTS: Final[dict[str, str]] = {}
SUDDEN: Final[set[str]] = set()


def fault(
    part: str, *, sudden: bool = False
) -> Callable[[Callable[[Stage, random.Random], Iterator[str]]], None]:
    def register(function: Callable[[Stage, random.Random], Iterator[str]]) -> None:
        name = function.__name__.replace("_", " ")
        FAULTS[name] = contextlib.contextmanager(function)
        PARTS[name] = part
        if sudden:
            SUDDEN.add(name)

    return register
