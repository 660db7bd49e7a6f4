"""The suppression list: persons to forget, stored only as keyed hashes of their ids.

The key belongs to the warehouse. A hash is of an id in server events (`id …`), or of a user as
named for frequency caps (`user …`, `buyeruid …`, `ifa …`, `eid …`, see bidding/identity.py).
"""

import hmac
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

_FOLDED: Final = re.compile(r"[0-9A-Fa-f-]{32,64}", re.ASCII)  # UUIDs and SHA-256 hashes
_SPELLING: Final = re.compile(r"[\x00-\x20{}-]")


class Suppression(msgspec.Struct, frozen=True):
    """The key and the hashes of all suppressed persons."""

    key: bytes = b""
    hashes: frozenset[bytes] = frozenset()

    def has(self, name: str) -> bool:
        """Whether a name, such as `user 7`, is suppressed."""
        return bool(self.hashes) and hash_of(self.key, name) in self.hashes

    def has_id(self, id: str) -> bool:
        """Whether an id of a server event is suppressed."""
        return bool(self.hashes) and hash_of(self.key, event_name(id)) in self.hashes


def hash_of(key: bytes, name: str) -> bytes:
    """Return the keyed hash of a name (16 bytes)."""
    return hmac.digest(key, name.encode(errors="surrogatepass"), "sha256")[:16]


def user_names(id: str) -> list[str]:
    """Return the names of users with an id in frequency caps.

    For an eid, the id is `SOURCE ID`, whose source may be in any case.
    """
    source, space, rest = id.partition(" ")
    eid = f"eid {source.lower()}{space}{rest}"
    return [f"user {id}", f"buyeruid {id}", f"ifa {id}".lower(), eid]


def event_name(id: str) -> str:
    """Return the name of an id in server events; UUIDs and hashes may be spelt in any way."""
    plain = _SPELLING.sub("", id).lower()
    return f"id {plain if _FOLDED.fullmatch(plain) else id}"


def normal(id: str) -> str:
    """Return an id, in lower case if it is a UUID or a hash."""
    return id.lower() if _FOLDED.fullmatch(id) else id


def texts(value: Any) -> Iterator[str]:
    """Yield all texts in a JSON value, except keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for member in value.values():
            yield from texts(member)
    elif isinstance(value, list):
        for member in value:
            yield from texts(member)
