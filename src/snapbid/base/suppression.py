"""Persons who are to be forgotten: known by keyed hashes of their ids alone.

The key is the warehouse's. A hash is of an id as server events carry it (`id …`), or of a user as
frequency caps know one (`user …`, `buyeruid …`, `ifa …`, `eid …`, see bidding/identity.py).
"""

import hmac
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

_FOLDED: Final = re.compile(r"[0-9A-Fa-f-]{32,64}", re.ASCII)  # UUIDs and SHA-256 hashes


class Suppression(msgspec.Struct, frozen=True):
    """Who is suppressed."""

    key: bytes = b""
    hashes: frozenset[bytes] = frozenset()

    def has(self, name: str) -> bool:
        """Return whether a name, such as `user 7`, is suppressed."""
        return bool(self.hashes) and hash_of(self.key, name) in self.hashes

    def has_id(self, id: str) -> bool:
        """Return whether an id of a server event is suppressed."""
        return bool(self.hashes) and hash_of(self.key, event_name(id)) in self.hashes


def hash_of(key: bytes, name: str) -> bytes:
    """Return the keyed hash of a name, 16 bytes."""
    return hmac.digest(key, name.encode(errors="surrogatepass"), "sha256")[:16]


def user_names(id: str) -> list[str]:
    """Return the users whom frequency caps may know by an id; of an eid it is `SOURCE ID`."""
    return [f"user {id}", f"buyeruid {id}", f"ifa {id}".lower(), f"eid {id}"]


def event_name(id: str) -> str:
    """Return the name of an id in server events; of UUIDs and hashes the case does not matter."""
    return f"id {normal(id)}"


def normal(id: str) -> str:
    """Return an id with UUIDs and hashes in lower case."""
    return id.lower() if _FOLDED.fullmatch(id) else id


def texts(value: Any) -> Iterator[str]:
    """Yield all texts of a JSON value, but for the keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for member in value.values():
            yield from texts(member)
    elif isinstance(value, list):
        for member in value:
            yield from texts(member)
