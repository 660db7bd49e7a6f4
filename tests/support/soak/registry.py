"""The faults. Each is a context manager: entering it breaks something, leaving it repairs it.

It yields what exactly it broke. Only the stage's supervisor restarts what has ended. `parts` names
the part that each fault concerns; faults of different parts may be combined. `sudden` are those
that need no repair and are over at once.
"""

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Final, Generic, Self, TypeVar

from support.soak.fleet import Fleet
from support.soak.stage import MachineStage

StageT = TypeVar("StageT")
Broken = contextlib.AbstractContextManager[str]


class Faults(Generic[StageT]):
    """The faults of a kind of stage, by name."""

    def __init__(self) -> None:
        self.named: dict[str, Callable[[StageT, random.Random], Broken]] = {}
        self.parts: dict[str, str] = {}
        self.sudden: set[str] = set()

    def only(self, texts: str) -> Self:
        """Those with one of some texts, A,B, in their names. Raises ValueError where none is."""
        some = type(self)()
        some.named = {
            name: fault
            for name, fault in self.named.items()
            if any(text in name for text in texts.split(","))
        }
        some.parts, some.sudden = self.parts, self.sudden
        if not some.named:
            raise ValueError(
                f"{texts!r} is in the name of no fault: {', '.join(sorted(self.named))}"
            )
        return some

    def fault(
        self, part: str, name: str = "", *, sudden: bool = False
    ) -> Callable[[Callable[[StageT, random.Random], Iterator[str]]], None]:
        """Register a fault, by the name of its function where none is given."""

        def register(function: Callable[[StageT, random.Random], Iterator[str]]) -> None:
            named = name or function.__name__.replace("_", " ")
            self.named[named] = contextlib.contextmanager(function)
            self.parts[named] = part
            if sudden:
                self.sudden.add(named)

        return register


OF_MACHINE: Final = Faults[MachineStage]()
OF_FLEET: Final = Faults[Fleet]()
