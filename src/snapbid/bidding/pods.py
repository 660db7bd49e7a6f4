"""Ad pods: no two impressions of one get the same advertiser (OpenRTB 2.6, 7.6; contract 3).

Impressions with the same `podid` stand in one ad break, whether its slots are fixed (structured),
not (dynamic), or partly so (hybrid). An id is that of a video pod or of an audio pod: the same text
in both names two pods. `poddedupe` changes nothing: it says what the exchange removes itself.
"""

from collections.abc import Sequence

from snapbid.bidding.request import Imp, Text

_Pod = dict[Text, str]  # id of an impression -> the advertiser that has it


class Pods:
    """Which advertiser has which impression; `pods` are those of an impression, by its id."""

    def __init__(self, pods: dict[Text, list[_Pod]]) -> None:
        self._pods = pods

    def rivals(self, imp: Imp) -> list[str] | None:
        """Return the advertisers of the other impressions of its pods; None if it is in none."""
        pods = self._pods.get(imp.id)
        if pods is None:
            return None
        return [advertiser for pod in pods for id, advertiser in pod.items() if id != imp.id]

    def take(self, imp: Imp, advertiser: str) -> None:
        """Note which advertiser has an impression."""
        for pod in self._pods.get(imp.id, ()):
            pod[imp.id] = advertiser

    def release(self, imp: Imp) -> None:
        """Note that an impression has no bid any longer."""
        for pod in self._pods.get(imp.id, ()):
            pod.pop(imp.id, None)


def pods_of(impressions: Sequence[Imp]) -> Pods | None:
    """Return the pods in which several of the impressions stand; None if there are none."""
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
    return Pods(pods) if pods else None
