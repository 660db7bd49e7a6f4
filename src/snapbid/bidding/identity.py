"""The user behind a request, for frequency caps (contract 3).

The first id present counts: `user.id`, then `user.buyeruid`, then `device.ifa`, then an eid. A
user's name starts with the kind of id, so that ids of different kinds never collide. Overlong ids
and placeholders count as absent: a placeholder would turn all users of a sender into one.
"""

import re
from typing import Final

from snapbid.bidding.bounds import MAX_ENTRIES, MAX_TEXT
from snapbid.bidding.request import Device, Eid, Text, User

NOBODY: Final = frozenset(
    {"null", "undefined", "unknown", "none", "nil", "nan", "n/a", "na", "not available", "empty"}
    | {"anonymous", "anon", "missing", "unset", "not set", "optout", "opt-out", "opt_out"}
    | {"redacted", "object object"}
)
"""Placeholders for no id, in lower case, without surrounding quotes and brackets."""

LEAST_ALIKE: Final = 4
"""From this length on, one repeated character is a placeholder; a shorter one only if it is 0."""

_AROUND: Final = "'\"<>{}[]()"
_BETWEEN: Final = "-_:. "
_LONGEST: Final = max(map(len, NOBODY)) + 2 * len("(")
_MACRO: Final = re.compile(r"(\{\{.*\}\}|\$\{.*\}|%%.*%%|\[.*\]|<.*>)\Z", re.DOTALL)


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


def is_placeholder(id: str) -> bool:
    """Return whether an id is a placeholder that senders write for none.

    That is white space, a word such as `null`, an unfilled macro, or one repeated character, such
    as the zeroes of an advertising id that its user has withdrawn.
    """
    text = id.strip()
    own = text.strip(_BETWEEN)
    if not own.strip(own[:1] + _BETWEEN):
        return own[:1] in ("", "0") or len(own) >= LEAST_ALIKE
    if len(text) <= _LONGEST and text.strip(_AROUND).lower() in NOBODY:
        return True
    return text[0] in "{$%[<" and _MACRO.match(text) is not None


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
