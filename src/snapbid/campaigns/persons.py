"""Persons, known only by keyed hashes (contract 12).

A *member* is the hash of an id in bid requests, used to look up a request's user. A *person*
is the hash of a product's user in server events. No id is stored in the clear, and without the
warehouse's key nobody can compute a hash. Hashes are 64-bit integers, signed as in PostgreSQL.
"""

import re
from hashlib import blake2b, md5, sha1, sha256
from typing import Final, TypeGuard

from snapbid.campaigns._persons import siphash
from snapbid.campaigns.domains import MAX_TEXT

KINDS: Final = ("ifa", "buyeruid", "user", "eid")
SCOPED: Final = {"user": "SSP", "eid": "source"}
"""Ids that identify a person only within a family of SSPs (its canonical id), or at a source."""

NOBODY: Final = frozenset(
    {"null", "undefined", "unknown", "none", "nil", "nan", "n/a", "na", "not available", "empty"}
    | {"anonymous", "anon", "missing", "unset", "not set", "optout", "opt-out", "opt_out"}
    | {"redacted", "object object", "false", "dnt", "unavailable", "not_available", "opted_out"}
    | {"-1", "user_id", "$user_id", "$uid"}
)
"""Placeholders for a missing id, in lower case, without surrounding quotes and brackets."""

SHARED: Final = ("02:00:00:00:00:00", "9774d56d682e549c")
"""Ids of many devices: the MAC address that Android shows to apps, and an early emulator's id."""

HASHES_OF_NOTHING: Final = frozenset(
    made(id.encode(), usedforsecurity=False).hexdigest()
    for id in ("", "00000000-0000-0000-0000-000000000000", *SHARED)
    for made in (md5, sha1, sha256)
)
"""Hashes of an empty id, a withdrawn advertising id and shared ids, from senders that hash all."""

LEAST_ALIKE: Final = 4
"""The length from which an id of one repeated character is a placeholder; one of 0s always is."""

LARGEST_NUMBER: Final = 19
"""The most digits that an advertiser's customer number may have."""

_SPELLING: Final = dict.fromkeys([*range(0x21), *map(ord, "-{}")])
_AROUND: Final = "'\"<>{}[]()"
_BETWEEN: Final = "-_:. "
_LONGEST: Final = max(map(len, NOBODY)) + 2 * len("(")
_NO_ONES: Final = HASHES_OF_NOTHING.union(SHARED)
_SHORTEST: Final = min(map(len, _NO_ONES))
_MACRO: Final = re.compile(
    r"(\{\{.*\}\}|\$\{.*\}|%%.*%%|\[.*\]|<.*>|\{[A-Za-z_]+\}|%[A-Za-z_]+%|#[A-Za-z_]+#"
    r"|__[A-Z][A-Z0-9_]*__)\Z",
    re.DOTALL,
)


class PersonKey:
    """The key that hashes persons' ids, derived from the warehouse's secret."""

    def __init__(self, secret: bytes) -> None:
        self.key = blake2b(secret, digest_size=16, person=b"snapbid persons").digest()

    def member(self, kind: str, id: str, scope: str = "") -> int:
        """Return the hash of an id in bid requests.

        An `ifa` may have any spelling. The scope of a `user` is the SSP's canonical id; that of an
        `eid` is its source, in any letter case.
        """
        scope = scope.lower() if kind == "eid" else scope
        return self._hash(kind, scope, folded(id) if kind == "ifa" else id)

    def of_event(
        self, product: str, client_user_id: str | None, anonymous_id: str | None
    ) -> tuple[int | None, int | None]:
        """Return the hashes of an event's user and of its anonymous user.

        Each is None if the id is missing or does not identify a person.
        """
        return (
            self.user(product, client_user_id) if is_somebody(client_user_id) else None,
            self.visitor(product, anonymous_id) if is_somebody(anonymous_id) else None,
        )

    def user(self, product: str, client_user_id: str) -> int:
        """Return the hash of a product's user."""
        return self._hash("client", product, client_user_id)

    def visitor(self, product: str, anonymous_id: str) -> int:
        """Return the hash of a product's anonymous user."""
        return self._hash("anonymous", product, anonymous_id)

    def _hash(self, kind: str, scope: str, id: str) -> int:
        return siphash(self.key, f"{kind}\0{scope}\0{id}".encode(errors="surrogatepass"))


def folded(id: str) -> str:
    """Return an advertising id in lower case, without dashes, braces or white space."""
    return id.lower().translate(_SPELLING)


def is_member_id(id: object) -> bool:
    """Return whether a value can be a person's id in a bid request."""
    return (
        isinstance(id, str)
        and 0 < len(id.encode(errors="surrogatepass")) <= MAX_TEXT
        and not is_placeholder(id)
    )


def is_somebody(id: str | None) -> TypeGuard[str]:
    """Return whether an id in server events identifies a person, and is not a placeholder.

    An id of one repeated character is a placeholder, except for short numbers such as 7777, since
    customers may be numbered; 0000, however, is a placeholder.
    """
    if id is None or not is_placeholder(id):
        return id is not None
    return len(id) <= LARGEST_NUMBER and id.isascii() and id.isdecimal() and id.strip("0") != ""


def is_placeholder(id: str) -> bool:
    """Return whether an id is a placeholder that senders write when they have no id.

    Placeholders are white space, a word such as `null`, an unfilled macro, a repeated character,
    such as the zeroes of a withdrawn advertising id, an id that many devices share, or the hash of
    an empty id, of these zeroes or of a shared id; each of these may be in quotes or brackets.
    """
    text = id.strip()
    own = text.strip(_BETWEEN + _AROUND)
    if len(text) <= _LONGEST and text.strip(_AROUND).lower() in NOBODY:
        return True
    if not own.strip(own[:1] + _BETWEEN):
        return own[:1] in ("", "0") or len(own) >= LEAST_ALIKE
    if len(own) >= _SHORTEST and own.replace("-", "").lower() in _NO_ONES:
        return True
    return text[0] in "{$%[<#_" and _MACRO.match(text) is not None
