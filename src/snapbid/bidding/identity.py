"""The user behind a request, for frequency caps (contract 3).

The first id present counts: `user.id`, then `user.buyeruid`, then `device.ifa`, then an eid. A
user's name starts with the kind of id, so that ids of different kinds never collide. Overlong ids
and placeholders count as absent: a placeholder would turn all users of a sender into one.
"""

from snapbid.bidding.bounds import MAX_ENTRIES, MAX_TEXT
from snapbid.bidding.request import Device, Eid, Text, User
from snapbid.campaigns.persons import is_placeholder


def recognise(device: Device, user: User) -> str | None:
    """Return the user's name; None if no id is present or tracking is limited."""
    if device.lmt == 1 or device.dnt == 1:
        return None
    if _is_id(user.id):
        return f"user {user.id}"
    if _is_id(user.buyeruid):
        return f"buyeruid {user.buyeruid}"
    if _is_id(device.ifa):
        return f"ifa {device.ifa}".lower()
    if user.eids or (user.ext is not None and user.ext.eids):
        return _eid(user.eids) or (_eid(user.ext.eids) if user.ext is not None else None)
    return None


def _eid(eids: list[Eid] | None) -> str | None:
    for eid in (eids or [])[:MAX_ENTRIES]:
        for uid in (eid.uids or [])[:MAX_ENTRIES]:
            if _is_id(uid.id) and (not eid.source or _counts(eid.source)):
                return f"eid {eid.source or ''} {uid.id}"
    return None


def _is_id(id: Text) -> bool:
    """Return whether an id identifies a user: not too long, and no placeholder."""
    return _counts(id) and not is_placeholder(str(id))


def _counts(text: Text) -> bool:
    """Return whether a text is present and not too long."""
    text = text if isinstance(text, str) else "" if text is None else str(text)
    return 0 < len(text) <= MAX_TEXT and (text.isascii() or len(text.encode()) <= MAX_TEXT)
