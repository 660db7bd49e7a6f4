"""The user behind a request, for frequency caps (contract 3).

The first id present counts: `user.id`, then `user.buyeruid`, then `device.ifa`, then an eid. A
user's name starts with the kind of the id, so that ids of different kinds never collide. An id that
is longer than any that counts is absent.
"""

from typing import Final

from snapbid.exchange.bounds import MAX_ENTRIES, MAX_TEXT
from snapbid.exchange.request import Device, Eid, Text, User

_BLANK: Final = frozenset("0-")


def recognise(device: Device, user: User) -> str | None:
    """Return the user's name; None if no id is present or tracking is limited."""
    if device.lmt == 1 or device.dnt == 1:
        return None
    if _is_id(user.id):
        return f"user {user.id}"
    if _is_id(user.buyeruid):
        return f"buyeruid {user.buyeruid}"
    ifa = device.ifa
    if _is_id(ifa) and not _BLANK.issuperset(str(ifa)):
        return f"ifa {ifa}".lower()
    if user.eids or (user.ext is not None and user.ext.eids):
        return _eid(user.eids) or (_eid(user.ext.eids) if user.ext is not None else None)
    return None


def _eid(eids: list[Eid] | None) -> str | None:
    for eid in (eids or [])[:MAX_ENTRIES]:
        for uid in (eid.uids or [])[:MAX_ENTRIES]:
            if _is_id(uid.id) and (not eid.source or _is_id(eid.source)):
                return f"eid {eid.source or ''} {uid.id}"
    return None


def _is_id(id: Text) -> bool:
    """Return whether there is an id, and of a length that counts."""
    text = id if isinstance(id, str) else "" if id is None else str(id)
    return 0 < len(text) <= MAX_TEXT and (text.isascii() or len(text.encode()) <= MAX_TEXT)
