"""How a bid is written down, in Redis and in the spool (the layouts of the *.lua files)."""

from hashlib import blake2b
from struct import Struct
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from snapbid.ledger.limits import Limits

WIN: Final = 1
BILLING: Final = 2
LOSS: Final = 4
HELD: Final = 8  # with the kinds: the cost of the bid is held
CAPPED: Final = 16  # with the kinds: the user is capped, and stands at the record's end

PLACE_SIZE: Final = 16
RECORD: Final = Struct("<IIIB")  # SSP, campaign, time (epoch s), kinds counted; then the CPM
USER: Final = Struct("<16sI")  # user, longest window of the caps (s)
NOTICE: Final = Struct("<Bh16s")  # kind, loss reason, place

_digest: Final = blake2b(digest_size=PLACE_SIZE).copy  # a copy costs half as much as a new one


class Remembered(msgspec.Struct, frozen=True, gc=False):
    """One bid to remember; `campaign` is the campaign's number, the price a CPM in micro-USD."""

    place: bytes
    campaign: int
    price_micros: int


class Reserved(msgspec.Struct, frozen=True):
    """One bid to remember within limits; `user` is a digest, where the limits have caps."""

    place: bytes
    campaign: int
    price_micros: int
    limits: "Limits | None"
    user: bytes


def user_digest(user: str) -> bytes:
    """By which a capped user is known, 16 bytes."""
    return blake2b(user.encode(errors="surrogatepass"), digest_size=16).digest()


def place(auction_id: bytes, imp_id: bytes) -> bytes:
    """Where the bid of an auction's impression is found: a digest of the pair, 16 bytes.

    The length in front keeps different pairs apart, and a 128-bit digest keeps hostile ids from
    being made to meet another's. The first two bytes choose a bucket, the others the record in it.
    """
    digest = _digest()
    digest.update(len(auction_id).to_bytes(4, "little") + auction_id + imp_id)
    return digest.digest()


def shard_of(auction_id: bytes, shards: int) -> int:
    """The shard that an auction's bids are in."""
    if shards == 1:
        return 0
    return int.from_bytes(blake2b(auction_id, digest_size=4).digest(), "little") % shards
