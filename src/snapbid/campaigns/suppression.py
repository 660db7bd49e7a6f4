"""The suppression list: persons to forget, stored only as keyed hashes of their ids.

The hashes' key belongs to the warehouse. A *name* is what is hashed: an id in server events and its
scope (`event_name`), or a user's key for frequency caps (`cap_names`). The same user id in two
products, or in two families of SSPs, denotes two persons. A device id, a click id, or the hash of
an email address or phone number identifies the same person everywhere.
"""

import hmac
import re
import uuid
from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from snapbid.campaigns.persons import folded

Identifies = Literal["user", "person"]
"""The scope of an identifier: a user of one product, or the same person in all products."""

_UNIQUE: Final = re.compile(r"[0-9a-f]{32,64}", re.ASCII)  # UUIDs and SHA-256 hashes, folded
_UUID_DIGITS: Final = 32


class Suppression(msgspec.Struct, frozen=True):
    """The hashes of the ids of all suppressed persons, and the key of the hashes."""

    key: bytes = b""
    hashes: frozenset[bytes] = frozenset()

    def has_user(self, user: str) -> bool:
        """Return whether the user with this key for frequency caps is suppressed."""
        return self._has(user)

    def has_id(self, product: str, identifies: Identifies | None, id: str) -> bool:
        """Return whether an id of a product's event is suppressed; see `event_names`."""
        return any(map(self._has, event_names(product, identifies, id)))

    def _has(self, name: str) -> bool:
        return bool(self.hashes) and hash_of(self.key, name) in self.hashes


def hash_of(key: bytes, name: str) -> bytes:
    """Return the keyed hash of a name (16 bytes)."""
    return hmac.digest(key, name.encode(errors="surrogatepass"), "sha256")[:16]


def cap_names(id: str, families: Iterable[str] = ()) -> list[str]:
    """Return the keys that frequency caps may use for a user with this id (`bidding.identity`).

    `families`: the families of SSPs in which the id may be a `user.id`. An eid is given as
    `SOURCE ID`, with the source in any letter case.
    """
    users = [f"user {family} {id}" for family in families]
    source, space, rest = id.partition(" ")
    eid = f"eid {source.lower()}{space}{rest}"
    return [*users, f"buyeruid {id}", f"ifa {folded(id)}", eid]


def event_name(id: str, product: str = "") -> str:
    """Return the name to hash for an id in events of `product`, or of any product if empty."""
    return f"id {product}\0{folded(id) if is_unique(id) else id}"


def event_names(product: str, identifies: Identifies | None, id: str) -> tuple[str, ...]:
    """Return the names to hash for an id in a product's event.

    The id is suppressed if any of these names is. `identifies` is None for a field outside the
    event catalog. The id then has a name in this product and, if no two persons can share it, a
    name in all products.
    """
    own, everywhere = event_name(id, product), event_name(id)
    if identifies is not None:
        return (own,) if identifies == "user" else (everywhere,)
    return (own, everywhere) if is_unique(id) else (own,)


def is_unique(id: str) -> bool:
    """Return whether an id is a UUID or a hash, in any spelling."""
    return _UNIQUE.fullmatch(folded(id)) is not None


def spellings(ids: Iterable[str]) -> set[str]:
    """Return ids in every spelling that may have been hashed."""
    found = set()
    for id in ids:
        found.add(id)
        if is_unique(id):
            plain = folded(id)
            forms = {id, plain}
            if len(plain) == _UUID_DIGITS:
                forms.add(str(uuid.UUID(plain)))
            found |= {cased for form in forms for cased in (form.lower(), form.upper())}
    return found
