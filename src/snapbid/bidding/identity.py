"""The user behind a request, for frequency caps (contract 3).

Caps count a user's impressions under a key made from the first of these ids that is present:
`user.id`, `user.buyeruid`, `device.ifa`, an eid of `user.eids`, an eid of `user.ext.eids`. Of
several eids, the one that sorts first by source and id is used. The key starts with the kind of id,
so that ids of different kinds never collide. A `user.id` belongs to the SSP, so its key includes
the SSP's family. Overlong ids and placeholders count as absent: a placeholder would merge all users
of a sender into one.
"""

from collections.abc import Iterable, Iterator

from snapbid.bidding.bounds import MAX_ENTRIES, MAX_TEXT
from snapbid.bidding.request import Device, Eid, Text, User
from snapbid.campaigns.persons import folded, is_placeholder


def recognise(device: Device, user: User, family: str) -> str | None:
    """Return the user's key for frequency caps; None without an id, or if tracking is limited.

    `family`: the SSP's family. `campaigns.suppression.cap_names` returns the same keys.
    """
    if device.lmt == 1 or device.dnt == 1:
        return None
    if _is_id(user.id):
        return f"user {family} {user.id}"
    if _is_id(user.buyeruid):
        return f"buyeruid {user.buyeruid}"
    if _is_id(device.ifa):
        return f"ifa {folded(str(device.ifa))}"
    if user.eids or (user.ext is not None and user.ext.eids):
        return _eid(user.eids) or (_eid(user.ext.eids) if user.ext is not None else None)
    return None


def member_ids(
    device: Device, user: User, canonicals: Iterable[str]
) -> Iterator[tuple[str, str, str]]:
    """Yield the ids under which audiences can list a request's user, as (kind, id, scope).

    `canonicals`: the SSP's canonical id and its former ones, since a user's opt-out may be stored
    under a former one. Overlong ids are left out. The matcher reads the same ids
    (`catalog._request`, `read_persons`).
    """
    given: list[tuple[str, Text, Text]] = [
        ("ifa", device.ifa, ""),
        *(("user", user.id, canonical) for canonical in canonicals),
        ("buyeruid", user.buyeruid, ""),
    ]
    for eids in (user.eids, user.ext.eids if user.ext is not None else None):
        for eid in (eids or [])[:MAX_ENTRIES]:
            given += [("eid", uid.id, eid.source) for uid in (eid.uids or [])[:MAX_ENTRIES]]
    for kind, id, scope in given:
        if _counts(id) and (not scope or _counts(scope)):
            yield kind, str(id), "" if scope is None else str(scope)


def _eid(eids: list[Eid] | None) -> str | None:
    """Return a key for the user's extended ids; None if none of them can be used.

    It is the first in alphabetical order, so the order in the request does not matter.
    """
    names = (
        f"eid {str(eid.source or '').lower()} {uid.id}"
        for eid in (eids or [])[:MAX_ENTRIES]
        if not eid.source or _counts(eid.source)
        for uid in (eid.uids or [])[:MAX_ENTRIES]
        if _is_id(uid.id)
    )
    return min(names, default=None)


def _is_id(id: Text) -> bool:
    """Return whether an id identifies a user: it is not too long, and not a placeholder."""
    return _counts(id) and not is_placeholder(str(id))


def _counts(text: Text) -> bool:
    """Return whether `text` is present and not too long."""
    text = text if isinstance(text, str) else "" if text is None else str(text)
    return 0 < len(text) <= MAX_TEXT and (text.isascii() or len(text.encode()) <= MAX_TEXT)
