"""The bidders, a module for each; there is no other list of them."""

import pkgutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, Protocol, cast

from bench.market.corpus import Campaign, Corpus
from bench.processes import ServerProcess

NO_BID, BID, LIMITS, NOTICES, MIXED = "no-bid", "bid", "limits", "notices", "mixed"
MODES = (NO_BID, BID, LIMITS, NOTICES, MIXED)


class Place(NamedTuple):
    """The place where a bidder runs.

    It has an empty folder, the cores of the server and of its stores and, if the bidder has a
    repository, a checkout in which it is built.
    """

    scratch: Path
    core: int
    store_core: int
    checkout: Path | None


class Started(NamedTuple):
    """A running bidder, which takes bid requests at `path`.

    `wins` returns how many wins it has counted so far, None if it counts none; `store_s` the
    processor time of its stores, None if it has none.
    """

    server: ServerProcess
    path: str
    wins: Callable[[], int] | None = None
    store_s: Callable[[], float] | None = None


class Bidder(Protocol):
    """The interface of the modules of this package."""

    NAME: str
    ABOUT: str  # what it is, in a sentence or two
    LACKS: Sequence[str]  # what it doesn't do, a sentence each
    REPOSITORY: str  # of the checkout that it needs, or ""
    SKIPPED: Mapping[str, str]  # the modes that it can't run, with the reason

    def campaign_of(self, cid: str) -> int:
        """Return the id of the corpus' campaign that a bid's `cid` names; may raise ValueError."""
        ...

    def start(
        self, stack: ExitStack, place: Place, corpus: Corpus, campaigns: Sequence[Campaign]
    ) -> Started:
        """Start the bidder with these campaigns; stopping it is left to the stack.

        `corpus` has all users and requests that will be sent. Raises BenchError if the bidder
        cannot be built or started.
        """
        ...


def load() -> dict[str, Bidder]:
    """Return all bidders by name."""
    names = sorted(each.name for each in pkgutil.iter_modules(__path__))
    modules = [cast(Bidder, import_module(f"{__name__}.{name}")) for name in names]
    return {each.NAME: each for each in modules}
