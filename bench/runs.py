"""The runs of `make bench`, in the order of the page; a run's section compares and renders it.

To add a run `KIND`:

- `bench/KIND_run.py`, whose `main` is a `bench.command.command` and returns what its section reads;
- `bench/sections/KIND.py` with `render` and `figures` (`sections.parts.Section`);
- its line here.
"""

from typing import Final, NamedTuple

from bench.sections import (
    catalog,
    drain,
    ledger,
    limits,
    match,
    micro,
    primaries,
    socket,
    together,
    workers,
)
from bench.sections.parts import Section


class Run(NamedTuple):
    """A run, and its options for different durations.

    `options` are those of `make bench`, which must end within 10 minutes in all; without them a run
    takes longer and its figures are steadier. `quick` are those of a run of three minutes in all,
    which leaves this one out if it is None. `reference` names a figure that does not depend on the
    product: if it moved, the machine did.
    """

    section: Section
    options: tuple[str, ...] = ()
    reference: str | None = None
    quick: tuple[str, ...] | None = None


MICRO: Final = "micro"  # run by pytest-benchmark; the others are modules
RUNS: Final = {
    MICRO: Run(
        micro,
        ("--benchmark-max-time=0.5",),
        "reference_json, µs",
        quick=("--benchmark-max-time=0.1", "-k", "not 100000"),
    ),
    "socket": Run(
        socket,
        ("--rounds=5", "--seconds=1.5", "--half-rounds=3", "--half-seconds=2"),
        "constant, processor µs",
        quick=("--rounds=3", "--seconds=0.5", "--half-rounds=1", "--half-seconds=1"),
    ),
    "ledger": Run(ledger, ("--rounds=3",)),
    "drain": Run(drain, ("--seconds=20",)),
    "together": Run(together, ("--rounds=3", "--seconds=3")),
    "limits": Run(limits, ("--rounds=40",)),
    "primaries": Run(primaries),
    "workers": Run(workers, ("--rounds=5", "--seconds=1.5")),
    "catalog": Run(catalog, ("--count=10000", "--count=100000")),
    "match": Run(match, ("--most=100000", "--peers=10000", "--rounds=40")),
}
