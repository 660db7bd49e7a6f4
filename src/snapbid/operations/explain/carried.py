"""Describes the values that the matcher reads from a request."""

from collections.abc import Mapping
from typing import Final

from snapbid.bidding.identity import recognise
from snapbid.bidding.lookups import Lookups
from snapbid.bidding.native_request import NATIVE_REQUESTS
from snapbid.bidding.privacy import Objection
from snapbid.bidding.refusals import sizes_of
from snapbid.bidding.request import BidRequest, Device, Imp, User
from snapbid.campaigns import codes

Carried = dict[str, list[str]]  # dimension -> values; dimensions without values are absent

_WHY: Final = {
    Objection.COPPA: "regs.coppa is 1",
    Objection.GPC: "Global Privacy Control is on (regs.gpc, or a section of regs.gpp)",
    Objection.GDPR: "the GDPR applies, and no TCF string grants purposes 1, 3 and 4",
    Objection.US_PRIVACY: "regs.us_privacy opts out of sale or cannot be read",
    Objection.GPP: "a section of regs.gpp that gpp_sid lists opts out, or cannot be read",
}
_NAMED_BY: Final = {
    "user": "user.id",
    "buyeruid": "user.buyeruid",
    "ifa": "device.ifa",
    "eid": "an eid",
}
WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def in_words(values: Mapping[str, list[str | int]], point: tuple[float, float] | None) -> Carried:
    """Describe a request's values by targeting dimension, each value once."""
    carried = {
        name: [codes.in_words(name, value) for value in dict.fromkeys(own)]
        for name, own in values.items()
        if own
    }
    if "hour" in values:
        carried["hour"] = [shown_hour(int(hour)) for hour in values["hour"]]
    if point is not None:
        carried["geo_radius"] = [", ".join(map(str, point))]
    return carried


def shown_hour(hour: int) -> str:
    """Describe an hour of the week (0 to 167); for example, 25 as `25 (Tuesday 01:00)`."""
    return f"{hour} ({WEEKDAYS[hour // 24]} {hour % 24:02}:00)"


def withheld(request: BidRequest, lookups: Lookups) -> list[str]:
    """List the reasons against using the request's user data; empty if it may be used."""
    return [_WHY[objection] for objection in lookups.objections(request)]


def unrecognised(request: BidRequest, why_withheld: list[str]) -> str:
    """Explain why a request's user is not recognised; call this only for such a request."""
    device = request.device or Device()
    if why_withheld:
        return "user data is withheld"
    if device.lmt == 1 or device.dnt == 1:
        return "device.lmt or device.dnt is 1"
    if recognise(device, request.user or User(), "") is not None:
        return "the user was forgotten (snapbid forget)"
    return "no user.id, user.buyeruid, device.ifa or eid"


def known_by(user: str | None) -> str | None:
    """Return the request's field that identified the user (identity.py); None without a user."""
    if user is None:
        return None
    return _NAMED_BY[user.partition(" ")[0]]


def asked(imp: Imp) -> str:
    """Describe the media that an impression asks for."""
    parts = []
    if imp.banner is not None:
        parts.append(f"banner {', '.join(sizes_of(imp)) or 'without a size'}")
    parts += [name for name in ("video", "audio") if getattr(imp, name) is not None]
    if imp.native is not None:
        readable = NATIVE_REQUESTS.of(imp.native) is not None
        parts.append("native" if readable else "native, whose request cannot be read")
    return "; ".join(parts) or "no media"
