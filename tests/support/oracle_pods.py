"""Ad pods, as the plain bidder reads them: OpenRTB 2.6, 3.2.7, 3.2.8 (`podid`) and 7.6; contract 3.

"If multiple impression opportunities within a bid request share the same `podid`, this indicates
that those impression opportunities belong to the same video ad pod", and the same of audio: so a
pod has an id and a medium. "Of a pod's impressions no two get the same advertiser."
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from support.oracle_reading import Slot
from support.oracle_values import domain

LONGEST = 512  # bytes of an impression's id; a longer one cannot be notified, so it gets no bid


class Separation:
    """The advertisers that the impressions decided so far have got, by pod."""

    def __init__(self) -> None:
        self._taken: defaultdict[tuple[str, str], set[str]] = defaultdict(set)

    def apart(self, slot: Slot) -> Slot:
        """Give an impression with the advertisers that it may not get."""
        taken = (self._taken[pod] for pod in slot.pods)
        return replace(slot, rivals=frozenset().union(*taken))

    def take(self, slot: Slot, advertiser: str) -> None:
        """Note who got an impression."""
        if len(slot.id.encode()) <= LONGEST:
            for pod in slot.pods:
                self._taken[pod].add(domain(advertiser))


def guaranteed_first(read: Sequence[Slot]) -> list[Slot]:
    """Order impressions as they are decided: where some share a pod, those with guaranteed deals
    first, so that these come before any price on another impression, too.
    """
    pods = [pod for slot in read for pod in slot.pods]
    if len(pods) == len(set(pods)):
        return [*read]
    return sorted(read, key=lambda slot: not any(deal.guaranteed for deal in slot.deals))
