"""Examines a sample of an SSP's requests off the bid path, where there is time for it.

The examination finds unusable values and, if no campaign matched a request, the last rule that
refused it. The bid path ignores unusable values, so the sender's mistakes show only here.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from snapbid.bidding.native_request import NATIVE_REQUESTS, fault_of, request_of
from snapbid.bidding.reasons import Reason
from snapbid.bidding.refusals import last_rule, sizes_of
from snapbid.bidding.request import BidRequest
from snapbid.bidding.snapshot import CatalogSnapshot
from snapbid.bidding.spelling import misspelt_in

RULE: Final = "rule:"
UNUSED: Final = "unused:"
EXAMINED: Final = "examined"
UNMATCHED: Final = "unmatched"


class Sample(NamedTuple):
    """A request from `RequestCounts.take_samples`; `reason`: why it got no bid."""

    body: bytes
    request: BidRequest
    ssp: str
    snapshot: CatalogSnapshot
    now_ms: int
    reason: Reason | None


def examine(sample: Sample) -> Iterator[str]:
    """Yield the names of the counters that a sample increments."""
    yield EXAMINED
    if sample.reason is Reason.NO_CAMPAIGN:
        yield UNMATCHED
        yield RULE + last_rule(sample.request, sample.ssp, sample.snapshot, sample.now_ms)
    for fault in sorted(set(_faults(sample))):
        yield UNUSED + fault


def _faults(sample: Sample) -> Iterator[str]:
    """Yield `path: rule` for each unusable value; paths have no indices, as in `imp[].banner`."""
    for imp in sample.request.imp or ():
        if imp.banner is not None and not sizes_of(imp):
            yield "imp[].banner: states no size, neither w and h nor format"
        native = imp.native
        if native is not None and NATIVE_REQUESTS.of(native) is None:
            yield f"imp[].native.request{fault_of(request_of(native))}"
    for path in misspelt_in(sample.body, BidRequest):
        yield f"{path}: is not read: its name is in the wrong letter case"
