"""Ad pods: no two impressions of a pod get the same advertiser (OpenRTB 2.6, 7.6; contract 3).

Impressions with the same `podid` belong to one ad break, whether its slots are fixed (structured),
open (dynamic), or both (hybrid). Video and audio pods have separate ids: the same id in both means
two pods. `poddedupe` is ignored, since it states what the exchange itself removes.

Of impressions in pods, those with guaranteed deals are decided first. Otherwise an advertiser might
be assigned an earlier impression of the pod by an open bid, and then could not take its own deal.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from snapbid.bidding.request import Imp, Text

if TYPE_CHECKING:
    from snapbid.bidding._bid_path import Choice

_Pod = dict[Text, str]  # id of an impression -> the advertiser that has it


class Pods:
    """The advertisers assigned to the impressions in ad pods.

    `pods` maps the id of an impression to its pods.
    """

    def __init__(self, impressions: Sequence[Imp], pods: dict[Text, list[_Pod]]) -> None:
        self._impressions = impressions
        self._pods = pods

    def in_turn(self) -> list[Imp]:
        """Return the impressions in the order in which they are decided."""
        return sorted(self._impressions, key=lambda imp: not _is_guaranteed(imp))

    def as_requested(self, choices: "Iterable[Choice]") -> "list[Choice]":
        """Return the choices in the order of the request's impressions."""
        places = {id(imp): place for place, imp in enumerate(self._impressions)}
        return sorted(choices, key=lambda choice: places[id(choice.imp)])

    def rivals(self, imp: Imp) -> list[str] | None:
        """Return the advertisers of the other impressions in the pods of `imp`.

        None if `imp` is in no pod.
        """
        pods = self._pods.get(imp.id)
        if pods is None:
            return None
        return [advertiser for pod in pods for id, advertiser in pod.items() if id != imp.id]

    def take(self, imp: Imp, advertiser: str) -> None:
        """Assign an impression to an advertiser."""
        for pod in self._pods.get(imp.id, ()):
            pod[imp.id] = advertiser

    def release(self, imp: Imp) -> None:
        """Undo `take` for an impression whose bid is dropped."""
        for pod in self._pods.get(imp.id, ()):
            pod.pop(imp.id, None)


def pods_of(impressions: Sequence[Imp]) -> Pods | None:
    """Return the pods that contain several of the impressions; None if there are none."""
    members: dict[tuple[str, str], list[Text]] = {}
    for imp in impressions:
        for medium, stream in (("video", imp.video), ("audio", imp.audio)):
            if stream is not None and stream.podid is not None and stream.podid != "":
                members.setdefault((medium, str(stream.podid)), []).append(imp.id)
    pods: dict[Text, list[_Pod]] = {}
    for ids in members.values():
        if len(ids) > 1:
            pod: _Pod = {}
            for id in ids:
                pods.setdefault(id, []).append(pod)
    return Pods(impressions, pods) if pods else None


def _is_guaranteed(imp: Imp) -> bool:
    return imp.pmp is not None and any(deal.guar == 1 for deal in imp.pmp.deals or ())
