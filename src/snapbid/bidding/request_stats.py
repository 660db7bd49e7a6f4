"""Request statistics of each SSP, for the go-live checklist (document 2) and the diagnosis.

`operations/golive/writer.py` writes the counts to Redis.
"""

import re
from collections import Counter, deque
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from snapbid.base.errors import Problem, UnsupportedMediaType
from snapbid.bidding._bid_path import RequestCounts
from snapbid.bidding.request import BidRequest

KEPT: Final = 20  # latest answers and latest problems of an SSP
MAX_TESTS: Final = 20  # test requests of an SSP in one write
SAMPLED: Final = 20  # requests of an SSP examined between two writes
MAX_DETAIL: Final = 200
MAX_RULES: Final = 50  # broken rules of an SSP in one write
MEANINGLESS: Final = "has an entry that means nothing in OpenRTB's lists"
_PATH: Final = re.compile(r"[A-Za-z][\w.\[\]-]*: ")
_INDEX: Final = re.compile(r"\[\d+\]")
_PARTICULARS: Final = re.compile(r": | \(")


class RequestTotals(msgspec.Struct):
    """Request statistics of one SSP in a period.

    `answers`, `problems`: the statuses of the latest answers, and the latest error answers, oldest
    first, each preceded by the time (epoch s) at which `take` returned it. `examples`: for each
    broken rule, the error detail of one request.
    """

    counts: Counter[str] = msgspec.field(default_factory=Counter)
    answers: list[str] = []
    problems: list[str] = []
    examples: dict[str, str] = {}

    def add(self, other: "RequestTotals") -> None:
        """Add the totals of a later period."""
        self.counts.update(other.counts)
        self.answers = [*self.answers, *other.answers][-KEPT:]
        self.problems = [*self.problems, *other.problems][-KEPT:]
        self.examples = self.examples | other.examples


class RequestStats:
    """Request statistics of one SSP in this worker, between two writes to Redis.

    The bid path updates `counts` for every request. All other figures concern only some requests,
    such as test requests.
    """

    __slots__ = (
        "_broken",
        "_content_type",
        "_examples",
        "_problems",
        "_untyped",
        "counts",
        "examined",
        "notices",
        "tested",
    )

    def __init__(self) -> None:
        self.counts = RequestCounts(KEPT, SAMPLED)
        self._clear()

    def _clear(self) -> None:
        self.counts.clear()
        self._content_type = self._untyped = 0
        self._problems: deque[str] = deque(maxlen=KEPT)
        self._broken: Counter[str] = Counter()
        self._examples: dict[str, str] = {}
        self.notices: Counter[str] = Counter()  # of test bids
        # Findings in samples (operations/golive/examination.py).
        self.examined: Counter[str] = Counter()
        self.tested: list[tuple[str, list[str]]] = []  # auction id, impression ids

    def take_samples(self, wanted: int) -> list[tuple[Any, ...]]:
        """Return the samples taken since the last call, and ask for `wanted` more."""
        return self.counts.take_samples(wanted)

    def test(self, request: BidRequest) -> None:
        """Record the ids of a test request and of its impressions."""
        if len(self.tested) < MAX_TESTS:
            imps = [str(imp.id) for imp in request.imp or ()]
            self.tested.append((str(request.id), imps[:MAX_TESTS]))

    def untyped(self) -> None:
        """Count a request without Content-Type; it is accepted nevertheless."""
        self._untyped += 1

    def refused(self, problem: Problem) -> None:
        """Count a request that was answered with an error."""
        self.counts.answered(problem.status)
        detail = problem.detail[:MAX_DETAIL]
        self._problems.append(f"{problem.status} {detail}")
        self._break(detail)
        if isinstance(problem, UnsupportedMediaType) and problem.detail.startswith("Content-Type"):
            self._content_type += 1

    def meaningless(self, lists: Iterable[str]) -> None:
        """Count each list of a request, given by its path, that has an entry unknown to OpenRTB."""
        for path in lists:
            self._break(f"{path}: {MEANINGLESS}")

    def _break(self, detail: str) -> None:
        rule = broken_rule(detail)
        if rule in self._broken or len(self._broken) < MAX_RULES:
            self._broken[rule] += 1
            self._examples[rule] = detail

    def take(self, now: int) -> RequestTotals:
        """Return the totals, stamped with the time (epoch s), and reset them."""
        own = self.counts
        counts = Counter({f"status:{status}": by for status, by in own.statuses.items()})
        counts.update(
            requests=own.requests,
            tests=own.tests,
            country=own.country,
            strange_country=own.strange_country,
            ua=own.ua,
            ip=own.ip,
            strange_ip=own.strange_ip,
            ipv6=own.ipv6,
            strange_ipv6=own.strange_ipv6,
            content_type=self._content_type,
            untyped=self._untyped,
        )
        counts.update(self.notices)
        counts.update(self.examined)
        counts.update({f"broken:{rule}": by for rule, by in self._broken.items()})
        totals = RequestTotals(
            +counts,
            [f"{now} {status}" for status in own.answers],
            [f"{now} {problem}" for problem in self._problems],
            self._examples,
        )
        self._clear()
        return totals


def broken_rule(detail: str) -> str:
    """Reduce an error detail to its rule: `imp[3].id: is required` to `imp[].id: is required`.

    This bounds the number of distinct rules, whatever clients send.
    """
    if _PATH.match(detail):
        return _INDEX.sub("[]", detail)
    return _PARTICULARS.split(detail, maxsplit=1)[0]
