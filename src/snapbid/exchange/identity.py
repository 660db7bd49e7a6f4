"""The user behind a request, for frequency caps (contract 3).

The first id present counts: `user.id`, then `user.buyeruid`, then `device.ifa`, then an eid. A
user's name starts with the kind of the id, so that ids of different kinds never collide.
"""

from typing import Final

from snapbid.exchange.request import Device, Eid, User

_BLANK: Final = frozenset("0-")


def recognise(device: Device, user: User) -> str | None:
    """Return the user's name; None if no id is present or tracking is limited."""
    if device.lmt == 1 or device.dnt == 1:
        return None
    if user.id is not None and user.id != "":
        return f"user {user.id}"
    if user.buyeruid is not None and user.buyeruid != "":
        return f"buyeruid {user.buyeruid}"
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
