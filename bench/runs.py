"""The runs of `make bench`, in the order of the page; each is compared, and rendered, by its kind.

To add a run `KIND`:

- `bench/KIND_run.py` with `--output FILE`, which writes JSON with `"kind": KIND`,
  `"about": bench.about.about()` and what else its section reads;
- `bench/sections/KIND.py` with `render` and `figures` (`sections.parts.Section`);
- its line here.
"""

from typing import Final, NamedTuple

from bench.sections import ledger, limits, micro, socket, together
from bench.sections.parts import Section


class Run(NamedTuple):
    """A run; `options` are those of `make bench`, which must end within 10 minutes as a whole."""

    section: Section
    options: tuple[str, ...] = ()


MICRO: Final = "micro"  # pytest-benchmark's, the others are modules
RUNS: Final = {
    MICRO: Run(micro),
    "socket": Run(socket),
    "ledger": Run(ledger),
    "together": Run(together),
    "limits": Run(limits),
}
