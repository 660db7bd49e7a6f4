"""What may break. A fault is a context manager: entered it breaks something, left it mends it.

It gives what exactly it broke. What ends is started again by the stage's supervisor alone. `PARTS`
says which part each concerns; faults of different parts may come together. `SUDDEN` are those that
have nothing to mend: they are over at once.
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
