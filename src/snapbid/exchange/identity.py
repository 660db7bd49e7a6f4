"""Whom a request comes from, as far as frequency caps need it (contract 3).

The first that is there: `user.id`, `device.ifa`, an eid. Its name tells the kinds apart, so that an
id of one kind is never taken for one of another.
"""

from typing import Final

from snapbid.exchange.request import Device, Eid, User

_BLANK: Final = frozenset("0-")


def recognise(device: Device, user: User) -> str | None:
    """The user's name, None where nobody is recognised or tracking is limited."""
    if device.lmt == 1 or device.dnt == 1:
        return None
    if user.id is not None and user.id != "":
        return f"user {user.id}"
    ifa = device.ifa
    if ifa is not None and not _BLANK.issuperset(str(ifa)):
        return f"ifa {ifa}".lower()
    if user.eids or (user.ext is not None and user.ext.eids):
        return _eid(user.eids) or (_eid(user.ext.eids) if user.ext is not None else None)
    return None


def _eid(eids: list[Eid] | None) -> str | None:
    for eid in eids or ():
        for uid in eid.uids or ():
            if uid.id is not None and uid.id != "":
                return f"eid {eid.source or ''} {uid.id}"
    return None
